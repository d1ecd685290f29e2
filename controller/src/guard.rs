//! PURE. Calls user code, and turns a panic in it into a message.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `user` returns, or the message it panicked with.
///
/// Nothing of ours is left half done by a panic: what `user` borrows is its own, or is dropped by the caller.
pub(crate) fn guarded<R>(user: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(user)).map_err(message)
}

fn message(payload: Box<dyn Any + Send>) -> String {
    let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "a panic without a message".to_owned(),
    };
    // A payload is any value: dropping it may panic, and so may dropping what that panics with.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
    message
}

#[cfg(test)]
mod tests {
    use std::panic::{panic_any, resume_unwind};

    use super::*;

    struct PanicOnDrop;

    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            resume_unwind(Box::new("a payload that panics when dropped"));
        }
    }

    #[test]
    fn tells_the_message_of_any_panic() {
        let quiet = |payload: Box<dyn Any + Send>| guarded(|| resume_unwind(payload)).map(drop);
        assert_eq!(guarded(|| 7), Ok(7));
        assert_eq!(quiet(Box::new("text")), Err("text".to_owned()));
        assert_eq!(quiet(Box::new(String::from("owned"))), Err("owned".to_owned()));
        assert_eq!(quiet(Box::new(7)), Err("a panic without a message".to_owned()));
        assert_eq!(quiet(Box::new(PanicOnDrop)), Err("a panic without a message".to_owned()));
        assert!(guarded(|| panic_any(7)).map(drop).is_err());
    }
}
