use std::sync::Arc;

use state_api::ObjectCacheBudget;

/// What the caches of one subtask have drawn of the process's budget, and what they use of it, in bytes.
pub(crate) struct CacheShare {
    budget: Arc<ObjectCacheBudget>,
    drawn: usize,
    /// What entries are charged with.
    used: usize,
    /// What their tables take beyond it.
    slack: usize,
    step: usize,
    /// Something must be given up before more comes in.
    pressed: bool,
}

impl CacheShare {
    pub(crate) fn new(budget: Arc<ObjectCacheBudget>) -> Self {
        budget.join();
        Self {
            drawn: 0,
            used: 0,
            slack: 0,
            step: budget.step(),
            pressed: false,
            budget,
        }
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Returns the bytes that a cache of one subtask among all may take at least.
    pub(crate) fn even_part(&self) -> usize {
        self.budget.even_part()
    }

    /// Says whether entries must be given up.
    #[inline]
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed
    }

    pub(crate) fn press(&mut self) {
        self.pressed = true;
    }

    /// Says whether something of so many bytes would find room.
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let needed = self.taken() + bytes;
        if needed + self.reserve() > self.drawn {
            self.grow(needed);
        }
        needed <= self.drawn
    }

    /// Takes bytes for something new, if there is room for it.
    pub(crate) fn charge(&mut self, bytes: usize) -> bool {
        let has_room = self.has_room(bytes);
        if has_room {
            self.used += bytes;
        }
        has_room
    }

    /// Notes that what is there has become larger or smaller.
    pub(crate) fn adjust(&mut self, delta: isize) {
        self.used = self.used.saturating_add_signed(delta);
        if self.taken() > self.drawn {
            self.grow(self.taken());
        }
    }

    pub(crate) fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Notes what tables take beyond what their entries are charged with.
    pub(crate) fn set_slack(&mut self, bytes: usize) {
        self.slack = bytes;
    }

    /// Tables of a few entries never shrink, so in a very small share their slack would leave room for nothing: half is left.
    fn taken(&self) -> usize {
        self.used + self.slack.min(self.drawn / 2)
    }

    /// Kept free, so that what comes in between two rounds of giving up finds room.
    fn reserve(&self) -> usize {
        self.step / 2
    }

    #[cold]
    fn grow(&mut self, needed: usize) {
        let missing = (needed + self.reserve()).saturating_sub(self.drawn);
        let bytes = missing.div_ceil(self.step) * self.step;
        let greedy = self.drawn > self.budget.even_part();
        if !(greedy && self.budget.is_wanted()) && self.budget.draw(bytes) {
            self.drawn += bytes;
            return;
        }
        self.pressed = true;
        if !greedy {
            self.budget.want();
        }
    }

    /// Bytes down to which entries are to be given up.
    fn target(&self) -> usize {
        let keep = if self.owes() {
            self.drawn.saturating_sub(self.step)
        } else {
            self.drawn
        };
        keep.saturating_sub(self.reserve())
    }

    /// Says whether others want what this subtask has beyond its even part.
    fn owes(&self) -> bool {
        self.budget.is_wanted() && self.drawn > self.budget.even_part()
    }

    /// Says whether more is used than there should be.
    pub(crate) fn is_over(&self) -> bool {
        self.taken() > self.target()
    }

    /// Gives back what is not needed, and looks whether there is still too much.
    pub(crate) fn relax(&mut self) {
        if self.owes() {
            let spare = self.drawn.saturating_sub(self.taken() + self.reserve());
            let excess = self.drawn - self.budget.even_part();
            self.give_back(spare.min(excess.next_multiple_of(self.step)) / self.step);
            if self.drawn <= self.budget.even_part() {
                self.budget.satisfy();
            }
        }
        self.pressed = self.is_over() && self.used > 0;
    }

    /// Gives back what has not been used, some room left.
    pub(crate) fn settle(&mut self) {
        let spare = self.drawn.saturating_sub(self.taken() + 2 * self.step);
        self.give_back(spare / self.step);
        self.pressed |= self.owes();
    }

    fn give_back(&mut self, steps: usize) {
        let bytes = steps * self.step;
        if bytes > 0 {
            self.drawn -= bytes;
            self.budget.give_back(bytes);
        }
    }
}

impl Drop for CacheShare {
    fn drop(&mut self) {
        self.budget.give_back(self.drawn);
        self.budget.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_is_drawn_and_given_back_at_the_end() {
        let budget = ObjectCacheBudget::new(4096);
        let mut share = CacheShare::new(Arc::clone(&budget));
        assert!(share.charge(1_000));
        assert!(budget.drawn() >= 1_000);
        assert!(!share.charge(4_000));
        assert!(share.is_pressed());
        assert_eq!(share.used(), 1_000);
        drop(share);
        assert_eq!((budget.drawn(), budget.even_part()), (0, 4096));
    }

    #[test]
    fn who_has_more_than_its_part_gives_it_back_when_somebody_asks() {
        let budget = ObjectCacheBudget::new(64 * 256);
        let mut first = CacheShare::new(Arc::clone(&budget));
        while first.charge(100) {}
        first.relax();
        let mut second = CacheShare::new(Arc::clone(&budget));
        assert!(!second.charge(1_000));
        for _ in 0..1_000 {
            first.settle();
            assert_eq!(first.is_pressed(), first.owes());
            while first.is_over() {
                first.release(100);
            }
            first.relax();
            while second.charge(100) {}
        }
        let part = budget.even_part();
        assert!(
            first.drawn <= part && first.drawn + 2 * 256 >= part,
            "{}",
            first.drawn
        );
        assert!(
            second.drawn <= part && second.drawn + 2 * 256 >= part,
            "{}",
            second.drawn
        );
    }
}
