//! The chapter beyond the protocol's own checks: what clients and crashes do to files, builds and
//! versions, who sees what, and what is kept.

mod access;
mod files;
mod interrupted;
mod kept;
mod logs;
mod packages;
mod paths;
mod ranges;

use hangar_tests::faults::API;

hangar_tests::faults! { API;
    e01 "E01" paths::names_that_look_escaped, paths::names_with_spaces;
    e02 "E02" paths::an_escaped_slash_is_a_slash, paths::an_escaped_escape_is_a_name;
    e03 "E03" paths::a_plus_is_a_plus, paths::listed_links_work_as_they_stand;
    e04 "E04" paths::odd_names_go_round, paths::odd_names_of_artifacts_are_read;
    e05 "E05" interrupted::a_cut_body_changes_nothing, interrupted::a_whole_body_replaces;
    e06 "E06" interrupted::a_build_that_was_cut_off_blocks_nothing, interrupted::a_build_survives_its_client;
    e07 "E07" logs::every_attempt_has_a_log_of_its_own, logs::a_log_is_followed_and_resumed;
    e08 "E08" ranges::ranges_are_clamped_refused_or_ignored, ranges::parts_make_the_whole;
    e09 "E09" files::a_multipart_form_is_no_project, files::a_body_of_any_type_is_kept;
    e10 "E10" paths::checks_are_on_decoded_names, paths::dots_within_names_are_names;
    e11 "E11" logs::a_failed_build_says_so_everywhere, logs::a_ready_build_says_so_everywhere;
}

/// Waits for something that comes by itself, and fails where it does not.
fn until(what: &str, mut look: impl FnMut() -> bool) {
    hangar_tests::processes::wait_for(what, || look().then_some(()));
}
