//! The API process of hangar: routes, the store, builds, sessions and artifacts.
//!
//! It runs without privileges. What needs privileges is asked of the warden, by name and never by
//! path; what parses hostile bytes is the worker. Reading order: [`serve`], [`app`], [`api`],
//! [`environments`], [`sessions`], [`store`], [`warden_client`].

#![forbid(unsafe_code)]

pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod egress;
pub mod environments;
pub mod failure;
pub mod harnesses;
pub mod lookups;
pub mod observe;
pub mod rates;
pub mod serve;
pub mod sessions;
pub mod store;
pub mod tasks;
pub mod uploads;
pub mod warden_client;
