//! A persistent vector with three levels: a root of any length, nodes of 64 slots each, and leaves.

use std::sync::Arc;

const WIDTH: usize = 64;

/// Leaves by number. Leaves are never removed.
#[derive(Clone, Debug)]
pub(super) struct Radix<L> {
    root: Arc<Vec<Arc<Mid<L>>>>,
}

type Mid<L> = [Option<Arc<L>>; WIDTH];

impl<L: Clone + Default> Radix<L> {
    #[inline]
    pub(super) fn get(&self, leaf: usize) -> Option<&L> {
        self.root.get(leaf / WIDTH)?[leaf % WIDTH].as_deref()
    }

    /// Returns a mutable reference to a leaf. If a clone shares nodes on the path to this leaf, or the leaf, they are copied first.
    #[inline]
    pub(super) fn get_mut(&mut self, leaf: usize) -> &mut L {
        let root = Arc::make_mut(&mut self.root);
        while root.len() <= leaf / WIDTH {
            root.push(Arc::new([const { None }; WIDTH]));
        }
        let slot = &mut Arc::make_mut(&mut root[leaf / WIDTH])[leaf % WIDTH];
        Arc::make_mut(slot.get_or_insert_default())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &L> {
        self.root.iter().flat_map(|mid| mid.iter().flatten()).map(|leaf| &**leaf)
    }
}

impl<L> Default for Radix<L> {
    fn default() -> Self {
        Self { root: Arc::default() }
    }
}

/// An array that implements `Default` for any length `LEN`.
#[derive(Clone, Debug)]
pub(super) struct Leaf<T, const LEN: usize>(pub(super) [T; LEN]);

impl<T: Default, const LEN: usize> Default for Leaf<T, LEN> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| T::default()))
    }
}
