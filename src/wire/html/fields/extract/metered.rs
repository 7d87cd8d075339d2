//! Elements as selectors look at them, with a count of what that costs: each step to another node, and each
//! comparison with a class or an attribute, is counted where it is done, so no selector costs more than it may.

use std::cell::Cell;
use std::fmt;

use super::{
    AttrSelectorOperation, AttrSelectorOperator, BloomFilter, CaseSensitivity, CssLocalName,
    CssString, Element, ElementRef, ElementSelectorFlags, LocalName, MatchingContext, Namespace,
    NamespaceConstraint, NonTSPseudoClass, OpaqueElement, PseudoElement, Simple,
};

/// Steps of a search, and the most that it may take. A step takes a few nanoseconds.
#[derive(Debug)]
pub(super) struct Steps {
    taken: Cell<u64>,
    most: u64,
    /// Steps for each element at which a selector is tried: it may have parts that look at no element, such as `*`.
    per_try: u64,
    /// Whether a match that is under way ends once they are excessive.
    ends_matches: bool,
}

/// With debug assertions the library finds the number of each element among its siblings twice, and takes it for a
/// fault of its own if a match that ends early makes a difference.
const ENDS_MATCHES: bool = !cfg!(debug_assertions);

impl Steps {
    /// A search that has taken so many steps.
    pub fn new(taken: u64, most: u64, per_try: u64) -> Self {
        Steps {
            taken: Cell::new(taken),
            most,
            per_try,
            ends_matches: ENDS_MATCHES,
        }
    }

    /// Takes steps; returns whether that many were left.
    pub fn take(&self, steps: u64) -> bool {
        let taken = self.taken.get().saturating_add(steps);
        self.taken.set(taken);
        taken <= self.most
    }

    /// Steps for a node: an element at which a selector is tried, or another.
    pub fn at(&self, is_element: bool) -> u64 {
        if is_element { self.per_try } else { 1 }
    }

    /// Steps taken so far.
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Whether more were wanted than are allowed.
    pub fn are_excessive(&self) -> bool {
        self.taken.get() > self.most
    }
}

/// An element whose uses are counted. Once they are excessive it matches nothing and has no neighbours, so a match
/// that is under way ends soon, with any result.
#[derive(Clone, Copy)]
pub(super) struct Metered<'a> {
    element: ElementRef<'a>,
    steps: &'a Steps,
}

impl<'a> Metered<'a> {
    /// Counts the uses of an element.
    pub fn new(element: ElementRef<'a>, steps: &'a Steps) -> Self {
        Metered { element, steps }
    }

    /// Takes steps; returns whether the match goes on.
    fn take(&self, steps: u64) -> bool {
        self.steps.take(steps) || !self.steps.ends_matches
    }

    /// The first element of some nodes.
    fn first(&self, nodes: impl Iterator<Item = Option<ElementRef<'a>>>) -> Option<Self> {
        for node in nodes {
            if !self.take(self.steps.at(node.is_some())) {
                return None;
            }
            if let Some(element) = node {
                return Some(Metered { element, ..*self });
            }
        }
        None
    }
}

impl Element for Metered<'_> {
    type Impl = Simple;

    fn opaque(&self) -> OpaqueElement {
        self.take(STEPS_OF_LOOKUP);
        OpaqueElement::new(self.element.value())
    }

    fn parent_element(&self) -> Option<Self> {
        self.first(self.element.parent().map(ElementRef::wrap).into_iter())
    }

    fn prev_sibling_element(&self) -> Option<Self> {
        self.first(self.element.prev_siblings().map(ElementRef::wrap))
    }

    fn next_sibling_element(&self) -> Option<Self> {
        self.first(self.element.next_siblings().map(ElementRef::wrap))
    }

    fn first_element_child(&self) -> Option<Self> {
        self.first(self.element.children().map(ElementRef::wrap))
    }

    fn is_html_element_in_html_document(&self) -> bool {
        Element::is_html_element_in_html_document(&self.element)
    }

    fn has_local_name(&self, name: &CssLocalName) -> bool {
        self.take(1) && self.element.value().name.local == name.0
    }

    fn has_namespace(&self, namespace: &Namespace) -> bool {
        self.take(1) && self.element.value().name.ns == *namespace
    }

    fn is_same_type(&self, other: &Self) -> bool {
        self.take(1) && self.element.value().name == other.element.value().name
    }

    fn attr_matches(
        &self,
        namespace: &NamespaceConstraint<&Namespace>,
        name: &CssLocalName,
        operation: &AttrSelectorOperation<&CssString>,
    ) -> bool {
        let attributes = &self.element.value().attrs;
        if !self.take(1 + attributes.len() as u64) {
            return false;
        }
        let is_named = |ns: &Namespace, local: &LocalName| {
            let is_within = match *namespace {
                NamespaceConstraint::Any => true,
                NamespaceConstraint::Specific(own) => own == ns,
            };
            is_within && *local == name.0
        };
        let mut named = attributes
            .iter()
            .filter(|(name, _)| is_named(&name.ns, &name.local));
        named.any(|(_, value)| self.take(steps_of(operation, value)) && operation.eval_str(value))
    }

    fn has_id(&self, id: &CssLocalName, case: CaseSensitivity) -> bool {
        self.take(1) && Element::has_id(&self.element, id, case)
    }

    fn has_class(&self, name: &CssLocalName, case: CaseSensitivity) -> bool {
        self.take(1);
        for class in self.element.value().classes() {
            if !self.take(1) {
                return false;
            }
            if case.eq(class.as_bytes(), name.0.as_bytes()) {
                return true;
            }
        }
        false
    }

    fn is_empty(&self) -> bool {
        for child in self.element.children() {
            if !self.take(1) || child.value().is_element() || child.value().is_text() {
                return false;
            }
        }
        true
    }

    fn is_root(&self) -> bool {
        self.take(1) && Element::is_root(&self.element)
    }

    // What no selector in a page without styles and shadows asks for.

    fn is_link(&self) -> bool {
        false
    }

    fn parent_node_is_shadow_root(&self) -> bool {
        false
    }

    fn containing_shadow_host(&self) -> Option<Self> {
        None
    }

    fn is_pseudo_element(&self) -> bool {
        false
    }

    fn is_part(&self, _name: &CssLocalName) -> bool {
        false
    }

    fn imported_part(&self, _name: &CssLocalName) -> Option<CssLocalName> {
        None
    }

    fn match_non_ts_pseudo_class(
        &self,
        _class: &NonTSPseudoClass,
        _context: &mut MatchingContext<'_, Simple>,
    ) -> bool {
        false
    }

    fn match_pseudo_element(
        &self,
        _element: &PseudoElement,
        _context: &mut MatchingContext<'_, Simple>,
    ) -> bool {
        false
    }

    fn is_html_slot_element(&self) -> bool {
        false
    }

    fn has_custom_state(&self, _name: &CssLocalName) -> bool {
        false
    }

    fn apply_selector_flags(&self, _flags: ElementSelectorFlags) {}

    fn add_element_unique_hashes(&self, _filter: &mut BloomFilter) -> bool {
        false
    }
}

impl fmt::Debug for Metered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Metered")
            .field(&self.element.value().name())
            .finish()
    }
}

/// Steps of comparing the value of an attribute, by what the library does for each operator.
fn steps_of(operation: &AttrSelectorOperation<&CssString>, value: &str) -> u64 {
    let AttrSelectorOperation::WithValue {
        operator,
        case_sensitivity,
        value: wanted,
    } = operation
    else {
        return 1;
    };
    let (length, wanted) = (value.len() as u64, wanted.as_ref().as_bytes());
    let compared = 1 + wanted.len() as u64 / 8;
    match (operator, case_sensitivity) {
        (
            AttrSelectorOperator::Equal
            | AttrSelectorOperator::Prefix
            | AttrSelectorOperator::Suffix
            | AttrSelectorOperator::DashMatch,
            _,
        ) => compared,
        (AttrSelectorOperator::Includes, _) => compared + length / 2,
        (AttrSelectorOperator::Substring, CaseSensitivity::CaseSensitive) => compared + length / 4,
        // It compares anew from each byte that is equal to the first.
        (AttrSelectorOperator::Substring, CaseSensitivity::AsciiCaseInsensitive) => {
            let is_first = |byte: &u8| wanted.first().is_some_and(|b| b.eq_ignore_ascii_case(byte));
            let tried = value.bytes().filter(is_first).count() as u64;
            length / 2 + compared * (1 + tried)
        }
    }
}

/// Steps of finding an element in a table of the library.
const STEPS_OF_LOOKUP: u64 = 8;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Field, Found, Page, Selectors};
    use super::*;
    use crate::wire::html::fields::FieldSpec;

    #[test]
    fn a_match_that_is_under_way_ends_when_its_steps_are_excessive() {
        let mut page = Page::new();
        page.read("<b></b>".repeat(300).as_bytes());
        page.read(b"<u></u>");
        page.end();
        let check = |selector: &str| {
            let spec = FieldSpec::parse(&format!("x={selector}")).expect(selector);
            let selectors = Selectors::new(&[spec]).expect(selector);
            let field: &Field = &selectors.0[0];
            let mut found = Found::default();
            let mut steps = Steps::new(0, 50_000, 1);
            steps.ends_matches = true;
            let html = page.decoder.inner_sink.html();
            field.look_in(&html, BTreeSet::new, true, &steps, &mut found);
            assert!(steps.are_excessive(), "{selector}");
            assert!(steps.taken() < 51_000, "{selector}: {}", steps.taken());
        };
        check(":is(i ~ *) ~ u");
        check(":not(:not(i ~ *)) ~ u");
        check(":is(:is(i ~ *) ~ *) ~ u");
    }
}
