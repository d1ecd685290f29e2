//! Scripts that send requests and check the exact responses: status codes, reasons, messages, fields and events. A script is a function that takes a
//! [`Server`], and panics if a response differs from the expected one. The tests of `kube-testing` run the scripts on the API server in memory;
//! `cargo xtask e2e` runs them on a real server. If the responses of the two servers differ, those of the real server are correct. [`each!`] lists
//! the scripts. The tests for each server call this macro to make each script a separate test.

#![forbid(unsafe_code)]
#![expect(clippy::missing_panics_doc, reason = "a script panics if a response differs from the expected one")]

pub mod applied_lists;
pub mod applies;
pub mod collected;
pub mod conflicts;
pub mod definitions;
pub mod deletions;
pub mod discovery;
pub mod expired;
pub mod lists;
pub mod metadata;
pub mod patches;
pub mod representations;
pub mod scopes;
pub mod selectors;
mod server;
pub mod statuses;
pub mod watches;

pub use crate::server::{Reply, Server};

/// Calls the macro `$test` with the paths of all scripts that need nothing but a server.
#[macro_export]
macro_rules! each {
    ($test:ident) => {
        $test! {
            applied_lists::an_apply_merges_lists_by_their_keys,
            applied_lists::custom_resources_merge_by_their_schema,
            applied_lists::custom_resources_without_a_schema_have_atomic_lists,
            applied_lists::metadata_and_services_have_lists_with_keys,
            applies::a_client_clears_managers,
            applies::a_dry_run_of_an_apply_stores_nothing,
            applies::a_field_that_is_no_longer_applied_is_removed,
            applies::a_null_conflicts_with_the_value_of_another_manager,
            applies::a_status_is_applied_apart,
            applies::an_apply_conflicts_with_other_managers,
            applies::an_apply_creates_an_object_or_merges_into_it,
            applies::an_apply_has_preconditions,
            applies::configurations_are_checked,
            applies::managers_of_updates_are_limited,
            applies::managers_share_a_field_with_one_value,
            applies::other_writes_have_managers,
            conflicts::a_create_is_refused_with_a_version_or_a_name_that_is_taken,
            conflicts::a_stale_update_is_a_conflict_and_one_without_a_version_is_not,
            conflicts::an_update_is_of_the_object_that_the_path_names,
            conflicts::custom_resources_and_leases_are_updated_with_a_version,
            conflicts::leases_and_roles_are_created_by_an_update,
            conflicts::names_are_generated,
            conflicts::names_are_validated,
            conflicts::other_metadata_is_validated,
            conflicts::the_version_zero_is_no_version,
            definitions::a_definition_in_two_versions_serves_the_same_objects,
            definitions::a_definition_is_established_and_serves_its_kind,
            definitions::a_deleted_definition_takes_its_objects_and_watches_with_it,
            definitions::objects_with_finalizers_hold_their_definition,
            deletions::a_collection_is_deleted_by_selectors,
            deletions::a_deletion_has_preconditions,
            deletions::a_dry_run_stores_nothing,
            deletions::a_pod_has_a_grace_period,
            deletions::a_write_neither_begins_nor_changes_a_deletion,
            deletions::an_object_stays_until_its_last_finalizer_is_removed,
            deletions::jobs_orphan_their_pods_by_default,
            deletions::policies_are_finalizers,
            deletions::some_deletions_answer_with_the_object,
            deletions::unknown_options_are_refused,
            discovery::groups_and_kinds_are_discovered,
            discovery::kinds_are_discovered_in_one_answer,
            discovery::the_version_is_returned,
            lists::a_list_continues_at_its_version,
            lists::lists_are_of_a_version,
            lists::parameters_that_contradict_each_other_are_refused,
            metadata::annotations_are_limited_to_256_kib,
            metadata::keys_of_annotations_are_validated,
            metadata::labels_and_annotations_are_strings,
            metadata::long_generated_names_are_cut,
            metadata::names_of_cron_jobs_are_short,
            patches::a_json_patch_edits_or_is_refused,
            patches::a_merge_patch_merges,
            patches::a_patch_with_a_stale_version_is_a_conflict,
            patches::a_strategic_merge_patch_merges_lists_by_their_keys,
            patches::custom_resources_have_no_strategic_merge_patch,
            patches::options_of_patches_are_checked,
            representations::large_bodies_are_refused,
            representations::metadata_alone_is_sent_where_it_is_accepted,
            representations::types_that_are_not_there_are_refused,
            scopes::kinds_without_namespaces_have_no_path_in_one,
            scopes::objects_in_a_namespace_are_only_listed_without_one,
            selectors::custom_resources_are_selected_by_declared_fields,
            selectors::each_kind_has_its_fields,
            selectors::fields_that_a_kind_has_not_are_refused,
            selectors::labels_select,
            selectors::special_characters_in_values_of_fields_are_escaped,
            statuses::a_custom_kind_without_the_subresource_has_no_status_apart,
            statuses::a_status_write_changes_only_the_status,
            statuses::generations_rise_with_the_spec,
            statuses::metadata_is_written_with_the_status_of_some_kinds,
            statuses::some_kinds_have_no_generation,
            watches::a_watch_sends_what_follows_its_version,
            watches::a_watch_without_a_version_begins_with_what_exists,
            watches::a_watch_without_initial_events_begins_with_the_next_change,
            watches::initial_events_end_with_a_bookmark,
            watches::a_version_that_is_not_reached_yet_is_an_error_or_awaited,
            watches::metadata_is_watched,
            watches::objects_enter_and_leave_a_selection,
            watches::parameters_of_watches_are_checked,
        }
    };
}
