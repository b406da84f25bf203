/// How many random cases are run, out of which seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of cases.
    pub cases: u32,
    /// Seed: the same seed gives the same cases.
    pub seed: u64,
}

impl Settings {
    /// The seed of a run that asks for no other.
    const SEED: u64 = 0x0048_6F6C_6466_6173;

    /// Reads `HOLDFAST_CASES` and `HOLDFAST_SEED` from the environment; else 48 cases out of a fixed seed.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_env_or(48)
    }

    /// Reads the environment as [`from_env`](Self::from_env) does, with another number of cases where it names none.
    #[must_use]
    pub fn from_env_or(cases: u32) -> Self {
        let number = |name| {
            std::env::var(name)
                .ok()
                .and_then(|text| text.parse::<u64>().ok())
        };
        let asked = number("HOLDFAST_CASES").and_then(|cases| u32::try_from(cases).ok());
        Self {
            cases: asked.unwrap_or(cases),
            seed: number("HOLDFAST_SEED").unwrap_or(Self::SEED),
        }
    }

    /// Returns settings with another seed, which follows from this one.
    #[must_use]
    pub fn other_seed(self) -> Self {
        Self {
            seed: self.seed.wrapping_add(1),
            ..self
        }
    }
}
