//! One text, two engines.

/// Compiles a program twice: in the module `kube_runtime` over kube's controller, in `flyball` over ours. A program that has to change more than the
/// import of the controller begins with what it has in each.
macro_rules! program {
    (kube_runtime { $($kube_runtime:tt)* } flyball { $($flyball:tt)* } $($text:tt)*) => {
        /// Over kube-runtime.
        pub mod kube_runtime {
            $($kube_runtime)*
            $($text)*
        }

        /// Over flyball.
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
