# Makes a tar of one commit of a repository. Arguments: the address, and a branch, tag or commit or
# nothing. It prints facts, one a line; it ends with 3 when there is no such commit.
#
# The repository has no work tree. So nothing is checked out, and no hook, filter, monitor or
# submodule of it is ever run; what it says about attributes is overruled, so that the tar has the
# bytes that were committed.
set -euo pipefail
url=$1 reference=$2
repository=$HOME/repository.git

settings=(
    core.hooksPath=/dev/null core.fsmonitor=false credential.helper= gc.auto=0
    fetch.recurseSubmodules=false submodule.recurse=false transfer.bundleURI=false
    fetch.unpackLimit=1 protocol.version=2 http.followRedirects=initial
    http.lowSpeedLimit=1 http.lowSpeedTime=60 tar.umask=0022
)
options=()
for setting in "${settings[@]}"; do options+=(-c "$setting"); done
git() { command git "${options[@]}" "$@"; }
fetch() { git fetch --quiet --no-tags --no-write-fetch-head "$@"; }
absent() { echo "the repository has no branch, tag or commit of that name" >&2; exit 3; }

git init --quiet --bare --template= "$repository"
cd "$repository"
mkdir -p info
echo '* -export-ignore -export-subst -text -eol -ident -filter -working-tree-encoding' > info/attributes

everything() {
    fetch "$url" '+refs/heads/*:refs/heads/*' '+refs/tags/*:refs/tags/*'
    found=$(git rev-parse --quiet --verify "$reference^{commit}") || absent
    git update-ref refs/fetched "$found"
}

if [[ $reference =~ ^([0-9a-f]{40}|[0-9a-f]{64})$ ]]; then
    # Most servers give any commit; of others the whole history is needed.
    fetch --depth=1 "$url" "+$reference:refs/fetched" || everything
else
    git ls-remote "$url" > refs.list
    wanted=$(awk -F '\t' -v name="${reference:-HEAD}" '
        { at[$2] = $1 }
        END {
            if (name == "HEAD" || name ~ /^refs\//) { if (name in at) print name }
            else if ("refs/heads/" name in at) print "refs/heads/" name
            else if ("refs/tags/" name in at) print "refs/tags/" name
        }' refs.list)
    if [[ -n $wanted ]]; then
        fetch --depth=1 "$url" "+$wanted:refs/fetched"
    elif [[ $reference =~ ^[0-9a-f]{7,63}$ ]]; then
        everything
    else
        absent
    fi
fi

commit=$(git rev-parse --verify "refs/fetched^{commit}")
echo "commit $commit"
# A submodule is a commit of another repository in the place of a directory.
git ls-tree -r "$commit" > tree.list
sed -n 's/^160000 commit [0-9a-f]*\t/submodule /p' tree.list
# Whoever stored files elsewhere left small texts in their places.
pointers=$(git grep -l -z --all-match -e '^version https://git-lfs\.github\.com/spec/v1$' \
    -e '^oid sha256:[0-9a-f]\{64\}$' "$commit" | tr -cd '\0' | wc -c) || pointers=0
echo "lfs_pointers $pointers"
git archive --format=tar --output="$WORKSPACE/tree.tar" "$commit"
