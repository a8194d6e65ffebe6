//! The server after the drop: its parts put together, served until a signal.

use super::{Ready, ServeError, listen, warden};
use crate::api;
use crate::api::auth::{DEFAULT_SCOPE, Tokens};
use crate::app::{App, boot_id, now_ms};
use crate::config::{Log, LogFormat};
use crate::environments::build;
use crate::environments::source::Sources;
use crate::observe::{audit::Audit, metrics};
use crate::sessions::{isolation::Isolations, sweep};
use crate::store::{Access, FIRST_TOKEN, Store, TokenRow};
use crate::tasks::recover;
use crate::uploads;
use crate::warden_client::{Notice, WardenClient};
use hangar_runtime::wire::warden::Request;
use hangar_runtime_sys::SignalFd;
use rustix::event::{PollFd, PollFlags, poll};
use std::io::Read;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};
use tracing_subscriber::EnvFilter;

/// Threads for blocking work; more of it waits.
const BLOCKING_THREADS: usize = 32;
/// How long an ephemeral server stays after the last request of others.
const LINGER: Duration = Duration::from_secs(2);
/// How long a warden that was not started here may take to come back.
const WARDEN_BACK: Duration = Duration::from_secs(10);
/// How long the warden may take to end everything.
const SHUTDOWN: Duration = Duration::from_secs(30);

/// Serves until SIGTERM or SIGINT, then ends the sessions and the warden.
pub(super) fn serve(ready: Ready) -> Result<(), ServeError> {
    start_log(&ready.config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_name("hangar")
        .enable_all()
        .build()
        .map_err(|e| ServeError::step("starting the runtime", &e))?;
    let started = ready.child.as_ref().map(|_| ready.warden.try_clone());
    let served = runtime.block_on(serve_async(ready));
    runtime.shutdown_timeout(Duration::from_secs(1));
    if let (Err(_), Some(Ok(socket))) = (&served, started) {
        warden::dismiss(&socket);
    }
    served
}

fn start_log(config: &Log) -> Result<(), ServeError> {
    let filter = match std::env::var("HANGAR_LOG") {
        Ok(filter) => filter,
        Err(_) => config.filter.clone(),
    };
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| ServeError::step("reading the filter of the log", error))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    // A second server in one process is a test of ours; the first log stays.
    let _ = match config.format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_current_span(true).try_init(),
    };
    Ok(())
}

async fn serve_async(ready: Ready) -> Result<(), ServeError> {
    let step = |step: &str, cause: &dyn std::fmt::Display| ServeError::step(step, cause);
    // A second server in one process is a test of ours; the first one counts.
    let _ = metrics::start();
    uploads::prepare(&ready.files).map_err(|e| step("making the directory of uploads", &e))?;
    clean_imports(&ready);
    let store =
        Store::open(&ready.files.database()).map_err(|e| step("opening the database", &e))?;
    if let Some(digest) = ready.token_digest {
        let token = TokenRow {
            id: FIRST_TOKEN.to_owned(),
            digest,
            scope: DEFAULT_SCOPE.to_owned(),
            access: Access::Full,
            name: "the file `token` of the state directory".to_owned(),
            created_ms: now_ms(),
            expires_ms: None,
        };
        store.put_token(token).await.map_err(|e| step("storing the token", &e))?;
    }
    let tokens = store.tokens().await.map_err(|e| step("reading the tokens", &e))?;
    let tokens = Tokens::new(tokens);
    let audit = Audit::start(ready.files.audit()).map_err(|e| step("opening the audit log", &e))?;
    let (warden, notices) = WardenClient::start(Some(ready.warden), ready.warden_socket);
    let (ended, ends) = mpsc::unbounded_channel();
    let isolations = Arc::new(Isolations::new(warden.clone(), ended));
    let app = Arc::new(App {
        builds: Default::default(),
        build_slots: Arc::new(Semaphore::new(ready.config.build.parallel_max.max(1))),
        sources: Sources::new(ready.files.sources()),
        config: ready.config,
        files: ready.files,
        store,
        warden,
        isolations,
        locks: Default::default(),
        lookups: Default::default(),
        tasks: Default::default(),
        runtimes: Default::default(),
        git_imports: Default::default(),
        live_sessions: Default::default(),
        tags: Default::default(),
        logs: Default::default(),
        activity: Default::default(),
        toolchain: Default::default(),
        audit,
        boot: boot_id(),
        tokens,
        rates: Default::default(),
        admission: Default::default(),
    });
    recover(&app, notices, ends).await?;
    let router = api::router(Arc::clone(&app));
    let local = tokio::net::UnixListener::from_std(ready.local)
        .map_err(|e| step("serving the local socket", &e))?;
    tokio::spawn(listen::serve_local(local, router.clone(), ready.range));
    if let Some(remote) = ready.remote {
        let address = remote.local_addr().map_err(|e| step("reading the address", &e))?;
        let remote = tokio::net::TcpListener::from_std(remote)
            .map_err(|e| step("serving the network", &e))?;
        let how = listen::Remote::new(&app.config.server, ready.tls.clone());
        tokio::spawn(listen::serve_remote(remote, router, how));
        say(&format!("listening on {address}{}", if ready.tls.is_some() { " by TLS" } else { "" }));
    }
    say("hangar is ready");
    let mut child = ready.child;
    tokio::select! {
        () = told_to_end(ready.signals) => {}
        () = unneeded(&app, ready.ephemeral) => {}
        error = warden_lost(&app, &mut child) => return Err(error),
    }
    say("ending the sessions");
    end(&app, child).await;
    Ok(())
}

/// Tells the operator. Whoever read standard error can be gone; that must not end the server.
fn say(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Waits for SIGTERM or SIGINT, which every thread has blocked since before there was a warden.
async fn told_to_end(signals: SignalFd) {
    let (told, wait) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut fds = [PollFd::new(&signals, PollFlags::IN)];
        while !matches!(poll(&mut fds, None), Ok(1..)) {}
        // Nobody waits any more when the server ends for another reason.
        let _ = told.send(());
    });
    let _ = wait.await;
}

/// Waits until the warden is gone and none comes back. Nothing here can start one any more; who
/// supervises this process starts both again.
async fn warden_lost(app: &App, child: &mut Option<Child>) -> ServeError {
    let mut since = None;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if app.warden.is_connected() {
            since = None;
            continue;
        }
        let lost = since.get_or_insert_with(Instant::now).elapsed();
        let ended = child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        match ended {
            // Clients learn meanwhile how their commands ended.
            Some(status) if lost >= Duration::from_secs(1) => {
                return ServeError::WardenLost(status.to_string());
            }
            None if lost >= WARDEN_BACK => {
                return ServeError::WardenLost("it was not started by this server".to_owned());
            }
            _ => {}
        }
    }
}

/// Waits until nobody needs an ephemeral server: who started it is gone, and no command and no
/// build runs for others who found it.
async fn unneeded(app: &App, ephemeral: bool) {
    if !ephemeral {
        return std::future::pending().await;
    }
    let (ended, input) = tokio::sync::oneshot::channel::<()>();
    // A thread of its own: the read can last as long as the process.
    std::thread::spawn(move || {
        let mut bytes = [0; 64];
        while matches!(std::io::stdin().read(&mut bytes), Ok(1..)) {}
        drop(ended);
    });
    // It is never sent to; the end of the thread is the end of the input.
    let _ = input.await;
    while app.isolations.any_command_is_followed() || app.activity.within(LINGER) {
        tokio::time::sleep(LINGER / 8).await;
    }
}

/// What an earlier process left in mid-air belongs to nobody.
fn clean_imports(ready: &Ready) {
    let imports = std::fs::read_dir(ready.files.sources()).into_iter().flatten().flatten();
    for entry in imports.filter(|e| e.file_name().as_encoded_bytes().ends_with(b".import")) {
        if let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::warn!("an import of an earlier process was not removed: {error}");
        }
    }
}

/// Learns what runs, ends what nobody will end, and starts what goes on by itself.
async fn recover(
    app: &Arc<App>,
    mut notices: mpsc::UnboundedReceiver<Notice>,
    mut ends: mpsc::UnboundedReceiver<crate::sessions::isolation::Ended>,
) -> Result<(), ServeError> {
    let step = |step: &str, cause: &dyn std::fmt::Display| ServeError::step(step, cause);
    // The first notice says that the connection handed over is served.
    let _ = tokio::time::timeout(Duration::from_secs(5), notices.recv()).await;
    let adopted = app.isolations.adopt().await;
    adopted.map_err(|e| step("taking over the running sessions", &e))?;
    // What happened while no API was there came before the answer. It is stored before the
    // commands are looked for whose end nobody knows.
    app.isolations.catch_up(&mut notices).await;
    sweep::store_known_ends(app, &mut ends).await;
    tokio::spawn(Arc::clone(&app.isolations).follow(notices));
    tokio::spawn(sweep::store_ends(Arc::clone(app), ends));
    uploads::sweep(app).await.map_err(|e| step("removing uploads nobody knows", &e))?;
    sweep::end_lost_commands(app).await.map_err(|e| step("ending lost commands", &e))?;
    let given_up = app.store.give_up_unsynced_dependencies(&app.boot).await;
    given_up.map_err(|e| step("giving up packages that may not be on disk", &e))?;
    build::fail_cut_off(app).await.map_err(|e| step("failing builds that were cut off", &e))?;
    recover::take_up_all(app).await.map_err(|e| step("taking up the tasks", &e))?;
    tokio::spawn({
        let app = Arc::clone(app);
        async move { sweep::remove_garbage(&app).await }
    });
    tokio::spawn(sweep::sweep(Arc::clone(app)));
    // Asking the interpreters takes a while; the first build or session need not wait for it.
    tokio::spawn({
        let app = Arc::clone(app);
        async move { app.toolchain.id().await }
    });
    Ok(())
}

/// Ends every session and the warden.
async fn end(app: &App, child: Option<Child>) {
    let ended = tokio::time::timeout(SHUTDOWN, app.warden.order(Request::Shutdown)).await;
    match ended {
        // It may close the connection before it answers.
        Ok(Ok(()) | Err(crate::warden_client::WardenError::Gone)) => {}
        Ok(Err(error)) => tracing::error!("the warden did not end: {error}"),
        Err(_) => tracing::error!("the warden did not end in time"),
    }
    // Tasks end with their sessions; that they did is stored.
    if tokio::time::timeout(SHUTDOWN, app.tasks.all_ended()).await.is_err() {
        tracing::error!("not every task has ended");
    }
    // Its answer comes before its end; the next server needs the lock it holds.
    let closed = async {
        while app.warden.is_connected() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = tokio::time::timeout(SHUTDOWN, closed).await;
    if let Some(mut child) = child {
        let waited = tokio::task::spawn_blocking(move || child.wait());
        if tokio::time::timeout(SHUTDOWN, waited).await.is_err() {
            tracing::error!("the warden still runs");
        }
    }
}
