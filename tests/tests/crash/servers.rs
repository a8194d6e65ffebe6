//! Servers: one for each state directory, with a warden of the same build, gone when told.
