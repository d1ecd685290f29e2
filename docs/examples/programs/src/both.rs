//! One text, two engines.

/// Compiles a program twice: in the module `kube_runtime` over kube's controller, in `flyball` over ours.
macro_rules! program {
    ($($text:tt)*) => {
        /// Over kube-runtime's controller.
        pub mod kube_runtime {
            use kube::runtime::Controller;
            $($text)*
        }

        /// Over flyball's: the one line that is changed.
        pub mod flyball {
            use flyball_kube::Controller;
            $($text)*
        }
    };
}
