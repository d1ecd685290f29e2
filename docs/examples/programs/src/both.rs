//! Compiles one source for two engines.

/// Compiles a program twice: in the module `kube_runtime` with kube-runtime's controller, in `flyball` with flyball-kube's. If the modules differ in
/// more than the import of the controller, the program begins with the lines that only one of the modules has.
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
