//! Detects refusals that do not depend on the pace: a constant share of all answers.

/// The share of such refusals, as the number of answers between two refusals.
#[derive(Debug, Default)]
pub(super) struct Noise {
    /// The average when slowing down was found not to help; 0 while none was detected.
    usual: f32,
    /// The gap at which it was detected. Refusals at a shorter gap do not update `usual`.
    detected_gap: u64,
    /// The recent average.
    recent: f32,
    /// Answers since the last refusal.
    answers: u32,
    slide: Slide,
}

/// Consecutive steps back from paces that had worked.
#[derive(Debug, Default)]
struct Slide {
    from: u64,
    refused: u64,
    answers: u32,
    answers_min: u16,
    steps: u8,
}

/// Where a series of steps back that did not help began.
pub(super) struct SlideStart {
    pub gap: u64,
    /// The refused gap known at that time.
    pub refused: u64,
}

/// Number of steps back without effect after which refusals count as noise.
const STEPS: u8 = 4;
/// Refusals more frequent than one in this many answers never count as noise.
const INTERVAL_MIN: f32 = 15.0;
/// Refusals up to this factor more frequent than usual count as usual.
const TOLERANCE: f32 = 2.0;

impl Noise {
    /// Records an answer that is not a refusal.
    pub fn answered(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    /// Returns whether refusals were seen that slowing down does not prevent.
    pub fn is_detected(&self) -> bool {
        self.usual > 0.0
    }

    /// Records a round of refusals of requests sent `gap` apart. Returns whether noise explains it.
    pub fn explains(&mut self, gap: u64) -> bool {
        let answers = std::mem::take(&mut self.answers);
        if self.usual == 0.0 {
            return false;
        }
        self.recent += (answers as f32 - self.recent) / 16.0;
        if gap >= self.detected_gap {
            self.usual += (answers as f32 - self.usual) / 32.0;
        }
        self.usual >= INTERVAL_MIN && self.recent * TOLERANCE >= self.usual
    }

    /// Records a step back from `gap`, which had worked for `answers` answers. Returns where the
    /// series of steps began if slowing down has not made refusals rarer.
    ///
    /// A server that is asked for more than its rate refuses the excess share. If refusals continue
    /// after the pace was lowered by more than that share, the pace is not their cause.
    pub fn step_back_from(&mut self, gap: u64, refused: u64, answers: u32) -> Option<SlideStart> {
        if self.slide.steps == 0 {
            // The answers before the first step belong to no particular pace.
            self.slide = Slide {
                from: gap,
                refused,
                answers: 0,
                answers_min: u16::MAX,
                steps: 1,
            };
            return None;
        }
        let slide = &mut self.slide;
        slide.steps = slide.steps.saturating_add(1);
        slide.answers = slide.answers.saturating_add(answers);
        slide.answers_min = slide
            .answers_min
            .min(u16::try_from(answers).unwrap_or(u16::MAX));
        let slower = gap as f32 / slide.from.max(1) as f32 - 1.0;
        if slide.steps < STEPS || slower * f32::from(slide.answers_min) < TOLERANCE {
            return None;
        }
        let slide = std::mem::take(slide);
        self.usual = slide.answers as f32 / f32::from(slide.steps - 1);
        self.recent = self.usual;
        self.detected_gap = slide.from;
        Some(SlideStart {
            gap: slide.from,
            refused: Some(slide.refused)
                .filter(|gap| *gap < slide.from)
                .unwrap_or(0),
        })
    }

    /// Ends the series: there was a window without refusals, or many refusals in a row, so they
    /// depend on the pace.
    pub fn end_slide(&mut self) {
        self.slide.steps = 0;
    }
}
