use std::mem;

use hashbrown::HashTable;

/// The hash bits that choose a table start here: hashbrown takes a bucket from the low bits and a tag from the top seven.
const SPREAD_SHIFT: u32 = 40;

/// The entries of one key group: tables bounded in size, split one at a time as in linear hashing (Litwin, 1980).
///
/// With `n` tables an entry lives in table `spread & mask`, or one level down if that table does not exist yet, so the only
/// state is the number of tables. The mean table holds at most [`Tables::TARGET`] entries; a table that waits for its split
/// holds twice that, which is what one growing step may have to move.
#[repr(C)]
pub(crate) struct Tables<E> {
    /// The only table, in line, for most groups have just one.
    one: HashTable<E>,
    /// The tables if there are several; then `one` is not used.
    many: Box<[HashTable<E>]>,
    /// All ones up to the highest bit of the last number of a table.
    mask: u32,
    /// Counts the times that entries may have moved to other places.
    moves: u32,
    len: usize,
}

/// Where an entry lies until the next structural change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    table: usize,
    bucket: usize,
}

/// A position in a walk over buckets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BucketCursor {
    table: usize,
    bucket: usize,
}

impl<E> Default for Tables<E> {
    fn default() -> Self {
        Self {
            one: HashTable::new(),
            many: Box::default(),
            mask: 0,
            moves: 0,
            len: 0,
        }
    }
}

impl<E> Tables<E> {
    /// The bucket count up to which a table grows: a step moves half a table, a megabyte at most.
    const MAX_BUCKETS: usize = {
        let size = if size_of::<E>() == 0 {
            1
        } else {
            size_of::<E>()
        };
        // An entry that owns heap memory is one whose hash or drop may have to fetch it.
        let weight = size + if std::mem::needs_drop::<E>() { 64 } else { 0 };
        let mut buckets = 65_536;
        while buckets > 256 && buckets * weight > 2 * 1024 * 1024 {
            buckets /= 2;
        }
        buckets
    };

    /// The mean number of entries a table past which the next one is split: with twice that, and three standard
    /// deviations, a table still fits its buckets at a load of 7/8.
    pub(crate) const TARGET: usize = Self::MAX_BUCKETS * 13 / 32;

    #[inline]
    fn tables(&self) -> &[HashTable<E>] {
        if self.many.is_empty() {
            std::slice::from_ref(&self.one)
        } else {
            &self.many
        }
    }

    #[inline]
    fn tables_mut(&mut self) -> &mut [HashTable<E>] {
        if self.many.is_empty() {
            std::slice::from_mut(&mut self.one)
        } else {
            &mut self.many
        }
    }

    /// Says which of several tables a hash belongs to, 0 if there is just one.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn index(&self, hash: u64) -> usize {
        let mask = self.mask as usize;
        let index = (hash >> SPREAD_SHIFT) as usize & mask;
        if index < self.many.len() {
            index
        } else {
            index & (mask >> 1)
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn table(&self, hash: u64) -> &HashTable<E> {
        if self.many.is_empty() {
            &self.one
        } else {
            &self.many[self.index(hash)]
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn table_mut(&mut self, hash: u64) -> &mut HashTable<E> {
        if self.many.is_empty() {
            return &mut self.one;
        }
        let index = self.index(hash);
        &mut self.many[index]
    }

    /// Says whether the mean table is too full.
    #[inline]
    fn wants_split(&self) -> bool {
        self.len >= self.many.len().max(1) * Self::TARGET
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Says whether nothing is allocated.
    #[inline]
    pub(crate) fn is_blank(&self) -> bool {
        self.many.is_empty() && self.one.allocation_size() == 0
    }

    /// Returns a number that is another one whenever an entry may have moved to another place.
    #[inline]
    pub(crate) fn moves(&self) -> u32 {
        self.moves
    }

    /// Returns the number of a place, each its own; `None` in the unlikely case of a table larger than those usually get.
    #[inline]
    pub(crate) fn number(place: Place) -> Option<usize> {
        (place.bucket < Self::MAX_BUCKETS).then_some(place.table * Self::MAX_BUCKETS + place.bucket)
    }

    /// Returns the place that has a number.
    #[inline]
    pub(crate) fn numbered(number: usize) -> Place {
        Place {
            table: number / Self::MAX_BUCKETS,
            bucket: number % Self::MAX_BUCKETS,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn get(&self, hash: u64, eq: impl FnMut(&E) -> bool) -> Option<&E> {
        self.table(hash).find(hash, eq)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn get_mut(&mut self, hash: u64, eq: impl FnMut(&E) -> bool) -> Option<&mut E> {
        self.table_mut(hash).find_mut(hash, eq)
    }

    #[inline]
    pub(crate) fn find(&self, hash: u64, eq: impl FnMut(&E) -> bool) -> Option<Place> {
        let table = self.index(hash);
        let bucket = self.tables()[table].find_bucket_index(hash, eq)?;
        Some(Place { table, bucket })
    }

    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<&E> {
        self.tables().get(place.table)?.get_bucket(place.bucket)
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, place: Place) -> Option<&mut E> {
        self.tables_mut()
            .get_mut(place.table)?
            .get_bucket_mut(place.bucket)
    }

    /// Adds an entry that is not there.
    #[inline]
    pub(crate) fn insert_absent(
        &mut self,
        hash: u64,
        entry: E,
        rehash: impl Fn(&E) -> u64,
        bytes: &mut usize,
    ) -> Place {
        let table = self.table(hash);
        if table.len() == table.capacity() || self.wants_split() {
            self.make_room(hash, &rehash, bytes);
        }
        self.len += 1;
        let table = self.index(hash);
        let added = self.tables_mut()[table].insert_unique(hash, entry, rehash);
        Place {
            table,
            bucket: added.bucket_index(),
        }
    }

    /// Allocates for so many entries what they would have allocated by and by; does nothing once something is allocated.
    pub(crate) fn reserve(&mut self, entries: usize, bytes: &mut usize) {
        if !self.is_blank() || entries == 0 {
            return;
        }
        let count = entries.div_ceil(Self::TARGET);
        let level = count.next_power_of_two();
        let upper = level / 2;
        let tables = (0..count).map(|index| {
            // A table whose upper half does not exist yet holds the entries of both.
            let shares = match index < upper && index + upper >= count {
                true => upper,
                false => level,
            };
            let mean = entries / shares;
            // Two standard deviations, where hashes decide how many there are.
            let spread = if count > 1 { 2 * mean.isqrt() } else { 0 };
            HashTable::with_capacity(mean + spread)
        });
        let tables: Vec<HashTable<E>> = tables.collect();
        *bytes += tables.iter().map(HashTable::allocation_size).sum::<usize>();
        self.put_back(tables, bytes);
    }

    /// Adds an entry unless its key is there; says whether it did.
    #[inline]
    pub(crate) fn add(
        &mut self,
        hash: u64,
        entry: E,
        eq: impl Fn(&E, &E) -> bool,
        rehash: impl Fn(&E) -> u64,
        bytes: &mut usize,
    ) -> bool {
        let table = self.table(hash);
        if table.len() == table.capacity() || self.wants_split() {
            self.make_room(hash, &rehash, bytes);
        }
        let table = self.table_mut(hash);
        let place = table.entry(hash, |other| eq(&entry, other), rehash);
        let hashbrown::hash_table::Entry::Vacant(vacant) = place else {
            return false;
        };
        vacant.insert(entry);
        self.len += 1;
        true
    }

    /// Removes an entry.
    #[inline]
    pub(crate) fn remove(
        &mut self,
        hash: u64,
        eq: impl FnMut(&E) -> bool,
        rehash: impl Fn(&E) -> u64,
        bytes: &mut usize,
    ) -> Option<E> {
        let table = self.table_mut(hash);
        let Ok(found) = table.find_entry(hash, eq) else {
            return None;
        };
        let (entry, _) = found.remove();
        let sparse = table.num_buckets() > 32 && table.len() * 8 < table.num_buckets();
        self.len -= 1;
        if sparse {
            self.give_back(hash, &rehash, bytes);
        }
        Some(entry)
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &E> {
        self.tables().iter().flat_map(HashTable::iter)
    }

    /// Returns the bytes that the tables have allocated.
    pub(crate) fn allocated(&self) -> usize {
        let tables = self.tables().iter().map(HashTable::allocation_size);
        tables.sum::<usize>() + size_of_val(&*self.many)
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, hash: u64, rehash: &impl Fn(&E) -> u64, bytes: &mut usize) {
        self.moves = self.moves.wrapping_add(1);
        if self.wants_split() {
            self.split(rehash, bytes);
        }
        let table = self.table_mut(hash);
        if table.len() == table.capacity() {
            let before = table.allocation_size();
            table.reserve(1, rehash);
            *bytes = *bytes + table.allocation_size() - before;
        }
    }

    /// Takes the tables out, to be put back by [`Tables::put_back`].
    fn take_out(&mut self, bytes: &mut usize) -> Vec<HashTable<E>> {
        *bytes -= size_of_val(&*self.many);
        if self.many.is_empty() {
            vec![mem::take(&mut self.one)]
        } else {
            mem::take(&mut self.many).into_vec()
        }
    }

    fn put_back(&mut self, mut tables: Vec<HashTable<E>>, bytes: &mut usize) {
        // A hash has fewer bits for the number of a table than a mask.
        self.mask = (tables.len().next_power_of_two() - 1) as u32;
        if tables.len() == 1 {
            self.one = tables.pop().unwrap_or_default();
        } else {
            self.many = tables.into_boxed_slice();
        }
        *bytes += size_of_val(&*self.many);
    }

    /// The table whose entries are shared with table `index`, and the bit that tells them apart.
    fn partner(index: usize) -> (usize, usize) {
        let level = 1 << index.ilog2();
        (index - level, level)
    }

    fn split(&mut self, rehash: &impl Fn(&E) -> u64, bytes: &mut usize) {
        let mut tables = self.take_out(bytes);
        let (from, level) = Self::partner(tables.len());
        let old = &mut tables[from];
        let mut high = HashTable::with_capacity(old.len() / 2 + old.len() / 32);
        // The lower half stays where it is: it will need the room again, and moving less keeps the step short.
        let is_high = |entry: &mut E| (rehash(entry) >> SPREAD_SHIFT) as usize & level != 0;
        for entry in old.extract_if(is_high) {
            high.insert_unique(rehash(&entry), entry, rehash);
        }
        *bytes += high.allocation_size();
        tables.reserve_exact(1);
        tables.push(high);
        self.put_back(tables, bytes);
    }

    /// Returns memory after removals: joins the last table with its partner, or shrinks the sparse one of a hash.
    #[cold]
    #[inline(never)]
    fn give_back(&mut self, hash: u64, rehash: &impl Fn(&E) -> u64, bytes: &mut usize) {
        self.moves = self.moves.wrapping_add(1);
        if self.len * 4 < self.many.len() * Self::TARGET {
            let mut tables = self.take_out(bytes);
            let last = tables.pop().unwrap_or_default();
            let (into, _) = Self::partner(tables.len());
            let into = &mut tables[into];
            *bytes -= last.allocation_size() + into.allocation_size();
            for entry in last {
                into.insert_unique(rehash(&entry), entry, rehash);
            }
            *bytes += into.allocation_size();
            self.put_back(tables, bytes);
        } else {
            let table = self.table_mut(hash);
            let before = table.allocation_size();
            table.shrink_to(table.len() * 2, rehash);
            *bytes = *bytes + table.allocation_size() - before;
        }
    }

    /// Takes out entries in bucket order until the budget is used up; returns false once nothing is left.
    ///
    /// A visited bucket costs one, a moved entry `cost`. Tables are freed as they become empty.
    pub(crate) fn drain(
        &mut self,
        cursor: &mut BucketCursor,
        budget: &mut usize,
        cost: usize,
        bytes: &mut usize,
        mut sink: impl FnMut(E, Place),
    ) -> bool {
        while *budget > 0 {
            let Some(table) = self.tables_mut().get_mut(cursor.table) else {
                *cursor = BucketCursor::default();
                if self.len == 0 {
                    *bytes -= size_of_val(&*self.many);
                    *self = Self::default();
                    return false;
                }
                continue;
            };
            if table.is_empty() || cursor.bucket >= table.num_buckets() {
                cursor.bucket = 0;
                if table.is_empty() {
                    *bytes -= table.allocation_size();
                    *table = HashTable::new();
                    cursor.table += 1;
                    *budget -= 1;
                }
                continue;
            }
            *budget -= 1;
            if let Ok(found) = table.get_bucket_entry(cursor.bucket) {
                let (entry, _) = found.remove();
                self.len -= 1;
                *budget = budget.saturating_sub(cost);
                let BucketCursor { table, bucket } = *cursor;
                sink(entry, Place { table, bucket });
            }
            cursor.bucket += 1;
        }
        true
    }

    /// Visits the entries of up to `buckets` buckets from a cursor on; returns false at the end.
    pub(crate) fn walk<'a>(
        &'a self,
        cursor: &mut BucketCursor,
        buckets: &mut usize,
        mut visit: impl FnMut(&'a E),
    ) -> bool {
        while let Some(table) = self.tables().get(cursor.table) {
            if table.is_empty() || cursor.bucket >= table.num_buckets() {
                *cursor = BucketCursor {
                    table: cursor.table + 1,
                    bucket: 0,
                };
                continue;
            }
            if *buckets == 0 {
                return true;
            }
            *buckets -= 1;
            if let Some(entry) = table.get_bucket(cursor.bucket) {
                visit(entry);
            }
            cursor.bucket += 1;
        }
        *cursor = BucketCursor::default();
        false
    }

    /// Visits the entries whose spread bits end in `slice` (of `slices`, a power of two), wherever they are now.
    pub(crate) fn for_each_in_slice<'a>(
        &'a self,
        slice: usize,
        slices: usize,
        rehash: impl Fn(&E) -> u64,
        mut visit: impl FnMut(&'a E),
    ) {
        let in_slice =
            |entry: &&E| (rehash(entry) >> SPREAD_SHIFT) as usize & (slices - 1) == slice;
        let tables = self.tables();
        if tables.len() <= slices {
            let table = self.table((slice as u64) << SPREAD_SHIFT);
            table.iter().filter(in_slice).for_each(&mut visit);
        } else {
            // The tables are split finer than the slices: those of a slice have numbers that end in it.
            let tables = tables.iter().skip(slice).step_by(slices);
            tables.flat_map(HashTable::iter).for_each(&mut visit);
        }
    }
}
