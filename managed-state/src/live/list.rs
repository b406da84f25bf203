use std::collections::VecDeque;
use std::fmt;

use imbl::Vector;

/// Elements up to which a list is copied whole.
const SHORT: usize = 64;

/// A list whose copies share structure once it is long, so that changing one of them copies a small part.
#[derive(Clone)]
pub struct LiveList<T>(Repr<T>);

#[derive(Clone)]
enum Repr<T> {
    Short(VecDeque<T>),
    Long(Box<Vector<T>>),
}

impl<T> Default for LiveList<T> {
    fn default() -> Self {
        Self(Repr::Short(VecDeque::new()))
    }
}

impl<T> LiveList<T> {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Short(short) => short.len(),
            Repr::Long(long) => long.len(),
        }
    }

    /// Says whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that the list takes on the heap, what its elements own not included; an estimate once it is long.
    #[inline]
    #[must_use]
    pub fn allocated(&self) -> usize {
        match &self.0 {
            Repr::Short(short) => short.capacity() * size_of::<T>(),
            // Chunks of 64 elements, the outer ones partly filled, and their tree.
            Repr::Long(long) => {
                size_of::<Vector<T>>() + (long.len() + SHORT) * (size_of::<T>() + 1)
            }
        }
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<T: Clone> LiveList<T> {
    /// Appends an element.
    #[inline]
    pub fn push(&mut self, element: T) {
        match &mut self.0 {
            Repr::Short(short) if short.len() < SHORT => short.push_back(element),
            Repr::Long(long) => long.push_back(element),
            Repr::Short(_) => {
                let long = self.lengthen();
                long.push_back(element);
            }
        }
    }

    #[cold]
    fn lengthen(&mut self) -> &mut Vector<T> {
        if let Repr::Short(short) = &mut self.0 {
            self.0 = Repr::Long(Box::new(std::mem::take(short).into_iter().collect()));
        }
        match &mut self.0 {
            Repr::Long(long) => long,
            Repr::Short(_) => unreachable!("the list was made long above"),
        }
    }

    /// Makes the list short again after removals, with a distance that keeps it from changing back and forth.
    fn settle(&mut self) {
        if let Repr::Long(long) = &mut self.0
            && long.len() <= SHORT / 2
        {
            self.0 = Repr::Short(std::mem::take(long.as_mut()).into_iter().collect());
        }
    }

    /// Removes the first element.
    pub fn pop_front(&mut self) -> Option<T> {
        let first = match &mut self.0 {
            Repr::Short(short) => short.pop_front(),
            Repr::Long(long) => long.pop_front(),
        };
        self.settle();
        first
    }

    /// Returns the element at a position.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        match &self.0 {
            Repr::Short(short) => short.get(index),
            Repr::Long(long) => long.get(index),
        }
    }

    /// Sets all elements.
    pub fn replace(&mut self, elements: impl IntoIterator<Item = T>) {
        self.clear();
        self.extend(elements);
    }

    /// Keeps the elements for which the function returns true, in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        match &mut self.0 {
            Repr::Short(short) => short.retain(keep),
            Repr::Long(long) => {
                let kept: Vector<T> = long
                    .iter()
                    .filter(|element| keep(element))
                    .cloned()
                    .collect();
                if kept.len() < long.len() {
                    **long = kept;
                }
            }
        }
        self.settle();
    }

    /// Returns an iterator over the elements.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let (short, long) = match &self.0 {
            Repr::Short(short) => (Some(short.iter()), None),
            Repr::Long(long) => (None, Some(long.iter())),
        };
        short
            .into_iter()
            .flatten()
            .chain(long.into_iter().flatten())
    }

    /// Calls a function for each element from a position on.
    pub(crate) fn for_each_from(&self, index: usize, f: impl FnMut(&T)) {
        match &self.0 {
            Repr::Short(short) => short.iter().skip(index).for_each(f),
            Repr::Long(long) if index < long.len() => {
                long.focus().narrow(index..).into_iter().for_each(f);
            }
            Repr::Long(_) => {}
        }
    }

    /// Calls a function for each element until it fails; quicker than the iterator.
    ///
    /// # Errors
    /// That of the function.
    #[inline]
    pub fn try_for_each<E>(&self, f: impl FnMut(&T) -> Result<(), E>) -> Result<(), E> {
        match &self.0 {
            Repr::Short(short) => short.iter().try_for_each(f),
            Repr::Long(long) => long.iter().try_for_each(f),
        }
    }

    /// Returns an iterator over the elements to be changed in place.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (short, long) = match &mut self.0 {
            Repr::Short(short) => (Some(short.iter_mut()), None),
            Repr::Long(long) => (None, Some(long.iter_mut())),
        };
        short
            .into_iter()
            .flatten()
            .chain(long.into_iter().flatten())
    }
}

impl<T: Clone> Extend<T> for LiveList<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.push(element));
    }
}

impl<T: Clone> FromIterator<T> for LiveList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut list = Self::default();
        list.extend(elements);
        list
    }
}

impl<T: Clone + PartialEq> PartialEq for LiveList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<T: Clone + fmt::Debug> fmt::Debug for LiveList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
