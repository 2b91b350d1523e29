//! Defines typed `u32` indices and the tables that they index.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// An entity reference: a `u32` that knows which table it belongs to.
pub trait Id: Copy + Eq {
    /// The id of the `index`-th entity.
    fn new(index: usize) -> Self;
    /// Position in its table.
    fn index(self) -> usize;
}

/// Declares an [`Id`] newtype.
#[macro_export]
macro_rules! entity {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $crate::ids::Id for $name {
            fn new(index: usize) -> Self {
                $name(u32::try_from(index).expect("invariant: fewer than 2^32 entities"))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// A growing table of `T`, indexed by `K`. Entities are never removed, so ids stay valid.
#[derive(Clone, PartialEq, Debug)]
pub struct Table<K, T> {
    items: Vec<T>,
    key: PhantomData<K>,
}

impl<K: Id, T> Table<K, T> {
    /// An empty table.
    pub fn new() -> Self {
        Table { items: Vec::new(), key: PhantomData }
    }
    /// Adds an entity and returns its id.
    pub fn push(&mut self, item: T) -> K {
        self.items.push(item);
        K::new(self.items.len() - 1)
    }
    /// Number of entities.
    pub fn len(&self) -> usize {
        self.items.len()
    }
    /// True when nothing was added.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// The entity, or `None` when `id` is not of this table.
    pub fn get(&self, id: K) -> Option<&T> {
        self.items.get(id.index())
    }
    /// Ids in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = K> + use<K, T> {
        (0..self.items.len()).map(K::new)
    }
    /// Entities with their ids, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &T)> {
        self.items.iter().enumerate().map(|(i, t)| (K::new(i), t))
    }
    /// Entities in order.
    pub fn values(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }
    /// Entities in order, to be changed.
    pub fn values_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }
}

impl<K: Id, T> Default for Table<K, T> {
    fn default() -> Self {
        Table::new()
    }
}

impl<K: Id, T> Index<K> for Table<K, T> {
    type Output = T;
    fn index(&self, id: K) -> &T {
        &self.items[id.index()]
    }
}

impl<K: Id, T> IndexMut<K> for Table<K, T> {
    fn index_mut(&mut self, id: K) -> &mut T {
        &mut self.items[id.index()]
    }
}
