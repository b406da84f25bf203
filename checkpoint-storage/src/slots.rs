/// Values at numbered places, in chunks: growing moves none of them and asks for no more memory than they take.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    chunks: Vec<Vec<Option<T>>>,
    /// Places without a value before the end.
    free: Vec<usize>,
}

/// Values of a chunk.
const CHUNK: usize = 1024;

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// Puts a value in a free place, which is returned.
    pub(crate) fn insert(&mut self, value: T) -> usize {
        if let Some(index) = self.free.pop() {
            self.chunks[index / CHUNK][index % CHUNK] = Some(value);
            return index;
        }
        let full = self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK);
        if full {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        chunk.push(Some(value));
        last * CHUNK + chunk.len() - 1
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.chunks
            .get_mut(index / CHUNK)?
            .get_mut(index % CHUNK)?
            .as_mut()
    }

    /// Takes out the values that a condition does not hold for, and hands each to a function with its place.
    pub(crate) fn retain(
        &mut self,
        mut keep: impl FnMut(&T) -> bool,
        mut taken: impl FnMut(usize, T),
    ) {
        let slots = self.chunks.iter_mut().flatten().enumerate();
        for (index, slot) in slots {
            if let Some(value) = slot.take_if(|value| !keep(value)) {
                self.free.push(index);
                taken(index, value);
            }
        }
    }
}
