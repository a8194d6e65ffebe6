//! Removals that are cut off go on.
