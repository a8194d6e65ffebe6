//! Archives and repositories that people really send, imported over HTTP by a real server, and
//! looked at through the listing, the bytes and sessions.

mod content;
mod exhaustion;
mod formats;
mod git;
mod ground;
mod links;
mod names;
mod real;
mod shapes;

use hangar_tests::faults::ARCHIVES;

hangar_tests::faults! { ARCHIVES;
    a01 "A01" names::backslashes_of_windows, names::backslashes_of_unix;
    a02 "A02" names::utf8_without_its_flag, names::names_in_other_encodings;
    a03 "A03" formats::a_streamed_member_with_wide_sizes, formats::a_streamed_zip;
    a04 "A04" content::modes_and_links_of_a_zip, content::a_zip_without_modes;
    a05 "A05" formats::one_name_with_two_contents, formats::one_member_listed_twice;
    a06 "A06" formats::unreadable_members_are_named_first, formats::every_readable_method;
    a07 "A07" shapes::directories_that_cannot_be_written, shapes::ordinary_modes;
    a08 "A08" shapes::members_without_parents, shapes::parents_that_come_later;
    a09 "A09" formats::a_size_before_a_long_name, formats::extensions_of_one_member;
    a10 "A10" shapes::an_archive_made_by_git, shapes::two_roots;
    a11 "A11" links::hard_links_to_elsewhere, links::hard_links_within;
    a12 "A12" formats::gzip_in_several_members, formats::archives_that_are_cut;
    a13 "A13" links::a_chain_that_leads_out, links::a_chain_within;
    a14 "A14" links::absolute_and_dangling_links, links::links_are_not_followed;
    a15 "A15" links::a_file_with_the_name_of_a_link, links::a_link_with_the_name_of_a_file;
    a16 "A16" content::sparse_files, content::holes_that_are_stored;
    a17 "A17" shapes::metadata_of_macos_beside_the_root, shapes::a_project_with_such_names;
    a18 "A18" shapes::side_files_of_macos, shapes::files_called_like_side_files;
    a19 "A19" names::names_that_are_no_utf8, names::names_of_many_scripts;
    a20 "A20" content::numbers_in_base_256, content::numbers_in_octal;
    a21 "A21" content::times_that_cannot_be_stored, content::ordinary_times;
    a22 "A22" names::a_path_that_is_too_long, names::a_path_that_is_just_not_too_long;
    a23 "A23" shapes::a_member_for_the_root, shapes::the_root_is_readable;
    a24 "A24" names::a_file_that_is_a_directory, names::names_that_only_begin_alike;
    a25 "A25" names::names_that_differ_by_case, names::names_that_differ_by_more;
    a26 "A26" content::an_import_over_a_frozen_file, content::an_import_over_other_files;
}
