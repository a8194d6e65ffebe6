//! The listed faults of builds, each with its legitimate twin.

use super::{frameworks, node, others, python};
use hangar_tests::faults::BUILDS;

hangar_tests::faults! { BUILDS;
    c01 "C01" python::modules_are_compiled_by_the_build, python::modules_of_a_session_are_compiled_beside_them;
    c02 "C02" python::programs_of_a_venv_run_where_they_were_installed, python::a_session_makes_a_venv_of_its_own;
    c03 "C03" node::a_bundler_builds_from_a_read_only_project, node::a_bundler_builds_from_a_copy;
    c04 "C04" others::copies_of_frozen_files_can_be_written, others::frozen_files_cannot;
    c05 "C05" frameworks::next_builds_in_a_copy_where_a_link_is_refused, node::packages_are_found_from_a_workspace;
    c06 "C06" python::uv_links_nothing_across_mounts, python::uv_has_a_cache_of_its_own;
    c07 "C07" node::lifecycle_scripts_write_where_they_may, node::lifecycle_scripts_write_nowhere_else;
    c08 "C08" python::data_that_git_knows_is_installed, others::git_reads_a_repository_in_a_session;
    c09 "C09" others::read_only_directories_of_a_failed_build_go_away, others::those_of_a_good_build_do_too;
    c10 "C10" others::go_builds_beside_half_a_repository, others::go_runs_in_a_session;
    c11 "C11" python::requirements_in_utf_16_are_installed, python::requirements_with_a_byte_order_mark_are_installed;
    c12 "C12" node::a_pinned_manager_is_not_asked_for, node::a_lock_of_pnpm_is_followed;
    c13 "C13" node::foreign_node_modules_are_left_out, node::the_source_keeps_what_was_uploaded;
    c14 "C14" python::editable_projects_are_found_from_anywhere, python::local_projects_are_installed_whole;
    c15 "C15" node::a_lock_of_another_system_is_told, node::a_lock_of_this_system_is_not;
    c16 "C16" python::a_version_from_git_is_told, python::a_version_from_a_variable_is_taken;
    c17 "C17" others::large_files_and_submodules_are_told, others::plain_projects_are_not;
    c18 "C18" others::cargo_builds_in_place_and_in_a_copy, others::cargo_makes_a_missing_lock;
    c19 "C19" python::a_private_repository_fails_at_once, python::a_public_package_does_not;
    c20 "C20" python::an_interpreter_that_is_missing_is_told, python::the_interpreter_of_a_venv_is_readable;
    c21 "C21" python::uv_run_changes_nothing, python::uv_runs_a_project_of_the_session;
    c22 "C22" python::builds_share_no_files, python::a_build_keeps_what_its_setup_changed;
    c23 "C23" others::every_session_has_a_home, others::homes_are_not_shared;
    c24 "C24" others::the_host_runs_no_git_of_a_project, others::git_settings_of_a_session_are_its_own;
    c25 "C25" others::a_setup_with_crlf_is_told, others::a_setup_without_mode_or_shebang_runs;
}
