//! Frameworks that write beside the project: Next and Prisma, on a project that cannot be written.

use super::{Server, built, says};
use serde_json::json;

const NEXT: &str = r#"{"name": "site", "version": "1.0.0", "private": true,
    "dependencies": {"next": "15.5.4", "react": "19.1.1", "react-dom": "19.1.1"}}"#;
/// Starts the server of Next on the session's own loopback, and asks it.
const ASK: &str = "node_modules/.bin/next start -H 127.0.0.1 -p 3456 > $HOME/next.log 2>&1 & server=$!
    for i in $(seq 200); do
        node -e 'fetch(\"http://127.0.0.1:3456/\").then(r => r.text()).then(t => console.log(t.match(/made by [a-z]+/)[0]))' \
            2> /dev/null && break
        sleep 0.2
    done
    kill $server";

fn site(server: &Server, more: super::Files<'_>) -> String {
    let page = "export default function Page() { return 'made by next'; }\n";
    let files = [&[("package.json", NEXT), ("pages/index.js", page)], more].concat();
    server.ready("site", &files).0
}

/// Next wants its output below the project; a link there, made by `setup.sh`, leads out of it.
#[test]
fn next_builds_and_starts_in_place() {
    let server = Server::new();
    let id = site(&server, &[("setup.sh", "ln -s /workspace/.next .next\n")]);
    let script = format!(
        "cd /env/site; mkdir $WORKSPACE/.next
         next build > $HOME/build.log 2>&1 || {{ cat $HOME/build.log; exit 1; }}
         test -s $WORKSPACE/.next/BUILD_ID; {ASK}"
    );
    assert_eq!(says(&server.session(&id), &script), "made by next\n");
}

/// The bundler that fixes a root refuses a link out of it, and takes the directory of a copy. The
/// programs of the copy are its own: those on the path would bring their packages a second time.
pub fn next_builds_in_a_copy_where_a_link_is_refused() {
    let server = Server::new();
    let id = site(&server, &[]);
    let session = server.session(&id);
    let linked = "mkdir linked; cd linked; cp -r /env/site/pages /env/site/package.json .
        ln -s /env/site/node_modules node_modules
        next build --turbopack 2>&1 | grep -o -m 1 'points out of the filesystem root'";
    assert_eq!(says(&session, linked), "points out of the filesystem root\n");
    let script = format!(
        "cp -a /env/site copy; cd copy
         node_modules/.bin/next build --turbopack > $HOME/build.log 2>&1 || {{ cat $HOME/build.log; exit 1; }}; {ASK}"
    );
    assert_eq!(says(&session, &script), "made by next\n");
}

const PRISMA: &str = r#"{"name": "data", "version": "1.0.0", "private": true, "dependencies":
    {"prisma": "6.19.0", "@prisma/client": "6.19.0", "@prisma/adapter-libsql": "6.19.0"}}"#;
const SCHEMA: &str = "datasource db {\n  provider = \"sqlite\"\n  url = \"file:./data.db\"\n}\n\
    generator client {\n  provider = \"prisma-client-js\"\n  engineType = \"client\"\n}\n\
    model Item {\n  id Int @id\n  word String\n}\n";
const QUERY: &str = "const { PrismaLibSQL } = require('@prisma/adapter-libsql');
const { PrismaClient } = require('@prisma/client');
const url = `file:${process.env.WORKSPACE}/data.db`;
const prisma = new PrismaClient({ adapter: new PrismaLibSQL({ url }) });
(async () => {
  await prisma.$executeRaw`CREATE TABLE \"Item\" (id INTEGER PRIMARY KEY, word TEXT NOT NULL)`;
  await prisma.item.create({ data: { id: 1, word: 'found' } });
  console.log((await prisma.item.findFirst({ where: { id: 1 } })).word);
})();
";

/// Prisma writes its client into `node_modules`, so `setup.sh` has it made. It would fetch a program
/// for migrations from a host of its own, which nothing here needs.
#[test]
fn prisma_generates_in_the_build_and_queries_in_a_session() {
    let server = Server::new();
    let files = [
        ("package.json", PRISMA),
        (".npmrc", "ignore-scripts=true\n"),
        ("prisma/schema.prisma", SCHEMA),
        ("query.js", QUERY),
        ("setup.sh", "prisma generate\n"),
    ];
    let id = server.declaring("data", &files, json!({}));
    let order = json!({ "variables": { "PRISMA_SCHEMA_ENGINE_BINARY": "/usr/bin/true" } });
    let log = built(&server.daemon.build(&id, &order));
    assert!(log.contains("Generated Prisma Client"), "{log}");
    let session = server.session(&id);
    let script = "cd /env/data; node query.js; test -s $WORKSPACE/data.db
        export PRISMA_SCHEMA_ENGINE_BINARY=/usr/bin/true
        prisma validate 2>&1 | grep -o 'is valid'; prisma format --check > /dev/null 2>&1 || true";
    assert_eq!(says(&session, script), "found\nis valid\n");
    // In a session it can only be made in a copy.
    let script = "export PRISMA_SCHEMA_ENGINE_BINARY=/usr/bin/true
        cd /env/data; prisma generate > $HOME/log 2>&1 && exit 1; grep -c -m 1 EROFS $HOME/log
        cp -a /env/data $WORKSPACE/copy; cd $WORKSPACE/copy; prisma generate > /dev/null 2>&1
        rm -f $WORKSPACE/data.db; node query.js";
    assert_eq!(says(&session, script), "1\nfound\n");
}
