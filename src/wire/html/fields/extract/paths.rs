//! What matching a selector at an element may cost, by the nodes that it looks at: ancestors, siblings, and those of
//! ancestors.

use super::{ElementRef, NodeId};

/// Which nodes besides an element a selector looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reach {
    pub ancestors: bool,
    /// The attributes of the element.
    pub attributes: bool,
    /// The sibling before it. That may be behind many texts and comments.
    pub near: bool,
    /// All siblings before it.
    pub siblings: bool,
    /// What follows an element decides, too: its match is known at the end of the page only.
    pub following: bool,
    /// A selector within the selector may look at others for each of these.
    pub nested: bool,
    /// Selectors, of which one is to match.
    pub alternatives: u64,
}

impl Reach {
    /// Of a selector.
    pub fn of(selector: &str) -> Self {
        let selector = selector.to_ascii_lowercase();
        let plain = without_brackets(&selector);
        // An escape may spell anything.
        let is_any = plain.contains('\\');
        let has = |parts: &[&str]| is_any || parts.iter().any(|part| plain.contains(part));
        let joins = |char: char| char.is_ascii_whitespace() || ">+~".contains(char);
        let (mut depth, mut nested) = (0_u32, is_any);
        for char in plain.chars() {
            match char {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => nested |= depth > 0 && joins(char),
            }
        }
        Reach {
            ancestors: is_any || plain.contains(|char: char| joins(char) && !"+~".contains(char)),
            attributes: is_any || selector.contains('['),
            near: has(&["+", "~", ":first", ":last", ":only", ":nth"]),
            siblings: has(&["~", "-of-type", " of "]),
            following: has(&[":last", ":only", ":nth-last", ":empty"]),
            nested,
            alternatives: 1 + plain.matches(',').count() as u64,
        }
    }

    /// Whether other nodes are looked at.
    fn others(self) -> bool {
        self.ancestors || self.near || self.siblings || self.following
    }

    /// Whether a match is known at the end of the page only.
    pub fn is_known_at_the_end(self) -> bool {
        self.following
    }
}

/// A selector without what is in brackets: there a space or a tilde has another meaning.
fn without_brackets(selector: &str) -> String {
    let mut depth = 0_u32;
    let mut keep = |char: &char| {
        match char {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => return depth == 0,
        }
        false
    };
    selector.chars().filter(|char| keep(char)).collect()
}

/// The cost of each element, as they are gone through in the order of the page.
pub(super) struct Paths {
    reach: Reach,
    /// The present element and those around it, from the outside in.
    above: Vec<Above>,
}

/// An element around others.
struct Above {
    id: NodeId,
    /// Its cost and that of those around it.
    cost: u64,
    /// Nodes in it up to its last element so far, that included.
    seen: u64,
    /// All nodes in it, once they are counted.
    all: Option<u64>,
}

impl Paths {
    /// Before the first element.
    pub fn new(reach: Reach) -> Self {
        Paths {
            reach,
            above: Vec::new(),
        }
    }

    /// The steps at the next element.
    pub fn enter(&mut self, element: ElementRef<'_>) -> u64 {
        let reach = self.reach;
        let mut cost = 1;
        if reach.attributes {
            cost += weight(element);
        }
        if !reach.others() {
            return cost * reach.alternatives;
        }
        // Around the content of a template is a node that is no element.
        let parent = element.ancestors().find_map(ElementRef::wrap);
        while let (Some(last), Some(parent)) = (self.above.last(), parent)
            && last.id != parent.id()
        {
            self.above.pop();
        }
        if parent.is_none() {
            self.above.clear();
        }
        let mut before = 0;
        if reach.near {
            let gap = element
                .prev_siblings()
                .take_while(|node| !node.value().is_element())
                .count() as u64;
            let seen = self.above.last().map_or(0, |above| above.seen);
            before = seen + gap;
            cost += if reach.siblings { before } else { gap };
        }
        if reach.following {
            cost += element
                .next_siblings()
                .take_while(|node| !node.value().is_element())
                .count() as u64;
            cost += element
                .children()
                .take_while(|node| !node.value().is_element())
                .count() as u64;
        }
        let mut path = cost;
        if let Some(above) = self.above.last_mut() {
            above.seen = before + 1;
            if reach.siblings && reach.following {
                let all = || parent.map_or(0, |parent| parent.children().count() as u64);
                let all = *above.all.get_or_insert_with(all);
                path += all.saturating_sub(before);
            }
            if reach.ancestors {
                path += above.cost;
            }
        }
        let depth = self.above.len() as u64;
        self.above.push(Above {
            id: element.id(),
            cost: path,
            seen: 0,
            all: None,
        });
        let times = if reach.nested { 1 + depth + before } else { 1 };
        path.saturating_mul(times)
            .saturating_mul(reach.alternatives)
    }
}

/// Steps of a comparison with the attributes of an element: their number and length.
fn weight(element: ElementRef<'_>) -> u64 {
    let attributes = element.value().attrs();
    attributes
        .map(|(_, value)| 1 + value.len() as u64 / 16)
        .sum()
}
