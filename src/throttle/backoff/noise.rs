//! Refusals that have nothing to do with the pace: a share of all answers, however slow one goes.

/// What is known of such a share, by the answers between one refusal and the next.
#[derive(Debug, Default)]
pub(super) struct Noise {
    /// On average, when slowing down was seen not to help; 0: it helps.
    usual: f32,
    /// The pace at which that was. What is refused at a faster one is no measure.
    borne: u64,
    /// On average lately.
    lately: f32,
    /// Answers since the last refusal.
    given: u32,
    slide: Slide,
}

/// Steps back from paces that had worked, one after the other.
#[derive(Debug, Default)]
struct Slide {
    from: u64,
    refused: u64,
    given: u32,
    given_least: u16,
    steps: u8,
}

/// Where a slide began that did not help.
pub(super) struct Began {
    pub gap: u64,
    /// What was known to be refused at that time.
    pub refused: u64,
}

/// This many steps back that do not help are enough.
const STEPS: u8 = 4;
/// Refusals more often than one in so many are never borne.
const LEAST: f32 = 15.0;
/// Refusals up to this factor more often than usual are usual.
const LENIENCE: f32 = 2.0;

impl Noise {
    /// An answer that is no refusal.
    pub fn answered(&mut self) {
        self.given = self.given.saturating_add(1);
    }

    /// Whether refusals were seen that slowing down does not help against.
    pub fn is_some(&self) -> bool {
        self.usual > 0.0
    }

    /// A round of refusals of requests `gap` apart; whether it is nothing new.
    pub fn explains(&mut self, gap: u64) -> bool {
        let given = std::mem::take(&mut self.given);
        if self.usual == 0.0 {
            return false;
        }
        self.lately += (given as f32 - self.lately) / 16.0;
        if gap >= self.borne {
            self.usual += (given as f32 - self.usual) / 32.0;
        }
        self.usual >= LEAST && self.lately * LENIENCE >= self.usual
    }

    /// A step back from `gap`, which had worked, after so many answers. Says where it began when
    /// slowing down does not make refusals rarer.
    ///
    /// A server that is asked for more than its rate refuses the share that is too much. Once the
    /// pace is slower by more than that share, and refusals go on, they are none of its doing.
    pub fn slid(&mut self, gap: u64, refused: u64, given: u32) -> Option<Began> {
        if self.slide.steps == 0 {
            // What was given before belongs to no pace in particular.
            self.slide = Slide {
                from: gap,
                refused,
                given: 0,
                given_least: u16::MAX,
                steps: 1,
            };
            return None;
        }
        let slide = &mut self.slide;
        slide.steps = slide.steps.saturating_add(1);
        slide.given = slide.given.saturating_add(given);
        slide.given_least = slide
            .given_least
            .min(u16::try_from(given).unwrap_or(u16::MAX));
        let slower = gap as f32 / slide.from.max(1) as f32 - 1.0;
        if slide.steps < STEPS || slower * f32::from(slide.given_least) < LENIENCE {
            return None;
        }
        let slide = std::mem::take(slide);
        self.usual = slide.given as f32 / f32::from(slide.steps - 1);
        self.lately = self.usual;
        self.borne = slide.from;
        Some(Began {
            gap: slide.from,
            refused: Some(slide.refused)
                .filter(|gap| *gap < slide.from)
                .unwrap_or(0),
        })
    }

    /// Refusals are a matter of pace: there was a window without any, or many of them on end.
    pub fn is_none(&mut self) {
        self.slide.steps = 0;
    }
}
