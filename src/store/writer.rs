//! The thread that writes. Changes that wait together are committed together, so that many small
//! ones share one write to disk; each counts or fails by itself.

use super::{Durability, StoreError};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

/// How many changes may wait; more callers wait for room.
const WAITING_MAX: usize = 256;
/// How many are committed at once.
const TOGETHER_MAX: usize = 64;

/// Tells whoever asked for a change what became of it, once that is known.
type Tell = Box<dyn FnOnce(Result<(), &str>) + Send>;
/// Makes a change, or hears why none can be made; the answer says whether it counts.
type Make = Box<dyn FnOnce(Result<&Connection, &str>) -> (bool, Tell) + Send>;

struct Change {
    durability: Durability,
    make: Make,
}

/// The way to the thread. The thread ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    sender: mpsc::Sender<Change>,
}

impl Writer {
    pub(super) fn start(mut connection: Connection) -> Self {
        let (sender, mut receiver) = mpsc::channel::<Change>(WAITING_MAX);
        std::thread::Builder::new()
            .name("store-write".to_owned())
            .spawn(move || {
                while let Some(first) = receiver.blocking_recv() {
                    let mut changes = vec![first];
                    while changes.len() < TOGETHER_MAX
                        && let Ok(another) = receiver.try_recv()
                    {
                        changes.push(another);
                    }
                    commit(&mut connection, changes);
                }
            })
            .expect("a thread can be started");
        Self { sender }
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        durability: Durability,
        change: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, result) = oneshot::channel();
        let make: Make = Box::new(move |connection| {
            let failed = |why: &str| StoreError::NotCommitted(why.to_owned());
            let made = connection.map_err(failed).and_then(change);
            let counts = made.is_ok();
            let tell: Tell = Box::new(move |committed| {
                let told = match committed {
                    Err(why) if counts => Err(failed(why)),
                    _ => made,
                };
                // The caller may have gone away; the change counts all the same.
                let _ = answer.send(told);
            });
            (counts, tell)
        });
        let sent = self.sender.send(Change { durability, make }).await;
        sent.map_err(|_| StoreError::Closed)?;
        result.await.map_err(|_| StoreError::Closed)?
    }
}

/// Makes changes in order in one transaction, and tells what became of each.
fn commit(connection: &mut Connection, changes: Vec<Change>) {
    let lasting = changes.iter().any(|change| change.durability == Durability::Power);
    let mut told = Vec::with_capacity(changes.len());
    let committed = make_all(connection, lasting, changes, &mut told);
    let why = committed.err().map(|error| error.to_string());
    for tell in told {
        tell(why.as_deref().map_or(Ok(()), Err));
    }
}

fn make_all(
    connection: &mut Connection,
    lasting: bool,
    changes: Vec<Change>,
    told: &mut Vec<Tell>,
) -> Result<(), rusqlite::Error> {
    let level = if lasting { "FULL" } else { "NORMAL" };
    let begun = connection.pragma_update(None, "synchronous", level);
    let begun =
        begun.and_then(|()| connection.transaction_with_behavior(TransactionBehavior::Immediate));
    let mut transaction = match begun {
        Ok(transaction) => transaction,
        Err(error) => {
            let why = error.to_string();
            told.extend(changes.into_iter().map(|change| (change.make)(Err(&why)).1));
            return Err(error);
        }
    };
    let mut failed = None;
    for change in changes {
        // A full disk ends the whole transaction, and what comes after must not count alone.
        if failed.is_none() && transaction.is_autocommit() {
            failed = Some("the transaction was rolled back".to_owned());
        }
        let point = match &failed {
            Some(why) => Err(why.clone()),
            None => transaction.savepoint().map_err(|error| error.to_string()),
        };
        match point {
            Ok(point) => {
                let (counts, tell) = (change.make)(Ok(&point));
                told.push(tell);
                // One that does not count is rolled back with the drop of its savepoint.
                if counts && let Err(error) = point.commit() {
                    failed = Some(error.to_string());
                }
            }
            Err(why) => {
                told.push((change.make)(Err(&why)).1);
                failed = Some(why);
            }
        }
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn changes_that_wait_together_count_or_fail_each_by_itself() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY)").unwrap();
        let writer = Writer::start(connection);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let first = writer.run(Durability::Process, move |_| {
            let _ = wait.recv();
            Ok(())
        });
        let insert = |number: i64, fails: bool| {
            let writer = writer.clone();
            tokio::spawn(async move {
                let insert = move |db: &Connection| {
                    db.execute("INSERT INTO t VALUES (?1)", [number])?;
                    if fails { Err(StoreError::Foreign) } else { Ok(number) }
                };
                writer.run(Durability::Power, insert).await
            })
        };
        let others: Vec<_> = [(1, false), (2, true), (1, false), (3, false)]
            .map(|(number, fails)| insert(number, fails))
            .into();
        let release = tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            go.send(()).unwrap();
        });
        first.await.unwrap();
        release.await.unwrap();
        let mut outcomes = Vec::new();
        for other in others {
            outcomes.push(other.await.unwrap().is_ok());
        }
        // Of the two that insert 1, whichever came first.
        assert_eq!(outcomes.iter().filter(|made| **made).count(), 2);
        assert!(!outcomes[1] && outcomes[3]);
        let count = writer.run(Durability::Process, |db| {
            Ok(db.query_row("SELECT group_concat(n) FROM t", [], |row| row.get::<_, String>(0))?)
        });
        assert_eq!(count.await.unwrap(), "1,3");
    }
}
