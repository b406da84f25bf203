use crate::remote::{Pacing, RequestPolicy};

/// Looks for an object that must be there before it counts as missing.
const LOOKS: u32 = 3;

/// Asks a store again for what it says it doesn't have: some forget for a moment what they have just taken.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    policy: RequestPolicy,
    pacing: Pacing,
}

impl Patience {
    pub(crate) fn new(policy: RequestPolicy, pacing: Pacing) -> Self {
        Self { policy, pacing }
    }

    /// Waits before the next look, and returns whether there is to be one after so many (from 1).
    pub(crate) async fn waits(&self, looks: u32) -> bool {
        if looks >= LOOKS {
            return false;
        }
        let wait = self.policy.backoff(looks, &self.pacing);
        self.pacing.sleep(wait).await;
        true
    }
}
