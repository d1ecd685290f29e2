//! PURE. Patches objects: JSON patch, JSON merge patch, strategic merge patch, server-side apply.

use jiff::Timestamp;
use kube::core::Status;
use serde_json::Value;

use crate::request::RecordedRequest;
use crate::state::update::Updated;
use crate::state::{State, strategic_merge};
use crate::status_error;

impl State {
    pub(crate) fn patch(
        &mut self,
        kind_id: usize,
        request: &RecordedRequest,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Updated, Box<Status>> {
        let patch = request.media_type();
        let accepted = &PATCHES[..if self.kind(kind_id).is_built_in() { 4 } else { 3 }];
        if !accepted.contains(&patch) {
            return Err(status_error::unsupported_media(accepted));
        }
        if patch == APPLY {
            return self.apply(kind_id, request, body, now);
        }
        let before = self.get(kind_id, request)?;
        let mut object = Value::clone(&before);
        // A patch applies to the object in the API version that the request names.
        object["apiVersion"] = request.api_version().into();
        match patch {
            MERGE => json_patch::merge(&mut object, &parse(body)?),
            STRATEGIC => object = strategic_merge::merge(&object, &parse(body)?)?,
            _ => {
                let patch: json_patch::Patch = serde_json::from_slice(body)
                    .map_err(|error| status_error::bad_request(&error.to_string()))?;
                edit(&mut object, &patch)?;
            }
        }
        self.update(kind_id, request, object, None).map(Updated::Changed)
    }
}

/// The media types of patches; the last one is only for built-in kinds.
const PATCHES: [&str; 4] = ["application/json-patch+json", MERGE, APPLY, STRATEGIC];
const MERGE: &str = "application/merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

pub(crate) fn parse(body: &[u8]) -> Result<Value, Box<Status>> {
    serde_json::from_slice(body)
        .map_err(|error| status_error::bad_request(&format!("unable to decode: {error}")))
}

/// Applies a JSON patch. As on a real server, a `test` operation with the value null also passes if the field is missing.
fn edit(object: &mut Value, patch: &json_patch::Patch) -> Result<(), Box<Status>> {
    for operation in patch.iter() {
        if let json_patch::PatchOperation::Test(test) = operation
            && test.value.is_null()
            && object.pointer(test.path.as_str()).is_none()
        {
            continue;
        }
        json_patch::patch(object, std::slice::from_ref(operation))
            .map_err(|_| status_error::patch_failed())?;
    }
    Ok(())
}
