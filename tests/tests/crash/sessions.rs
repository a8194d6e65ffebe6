//! Sessions: a command outlives the API, a session outlives nothing else, its files outlive all.
