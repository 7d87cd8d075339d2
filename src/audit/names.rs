//! Small numbers for names, up to a bound.

use std::collections::HashMap;

/// The number of a name.
pub type NameId = u32;

/// Names in the order of their numbers.
#[derive(Debug)]
pub struct Names {
    ids: HashMap<Box<str>, NameId>,
    names: Vec<Box<str>>,
    max: usize,
}

impl Names {
    /// At most `max` names.
    pub fn new(max: usize) -> Self {
        Names {
            ids: HashMap::new(),
            names: Vec::new(),
            max,
        }
    }

    /// The number of a name; `None` if there are too many.
    pub fn id(&mut self, name: &str) -> Option<NameId> {
        if let Some(id) = self.ids.get(name) {
            return Some(*id);
        }
        if self.names.len() >= self.max {
            return None;
        }
        let id = NameId::try_from(self.names.len()).ok()?;
        self.ids.insert(name.into(), id);
        self.names.push(name.into());
        Some(id)
    }

    /// The name of a number.
    pub fn name(&self, id: NameId) -> &str {
        &self.names[id as usize]
    }
}
