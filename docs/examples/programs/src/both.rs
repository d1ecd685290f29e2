//! Compiles the source of a program for both engines.

/// Compiles a program twice: in the module `kube_runtime` with the `Controller` of kube-runtime, and in the module `flyball` with the `Controller` of
/// flyball-kube. If the modules must differ in more than the import of `Controller`, the program begins with the blocks `kube_runtime { … }` and
/// `flyball { … }`, which contain the lines of only one module.
macro_rules! program {
    (kube_runtime { $($kube_runtime:tt)* } flyball { $($flyball:tt)* } $($text:tt)*) => {
        /// The program with kube-runtime.
        pub mod kube_runtime {
            $($kube_runtime)*
            $($text)*
        }

        /// The program with flyball-kube.
        pub mod flyball {
            $($flyball)*
            $($text)*
        }
    };
    ($($text:tt)*) => {
        program! {
            kube_runtime {
                use kube::runtime::Controller;
            }
            flyball {
                use flyball_kube::Controller;
            }
            $($text)*
        }
    };
}
