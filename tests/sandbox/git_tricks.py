"""Ways to make the git of a person run a program, each as a script that a command may run in the workspace.

Each must work where nothing guards the workspace: that shows that it would be noticed.
"""

from typing import NamedTuple

EVIL = """
set -u
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
run="touch $OUT/canary;false"
rm -rf "$TMPDIR/evil" && git -c init.defaultBranch=main init -q "$TMPDIR/evil" && cd "$TMPDIR/evil"
echo x > f && git add f && git config core.fsmonitor "$run" && cd "$OLDPWD"
evil() { cp -r "$TMPDIR/evil/.git" "$1"; }
{
"""
SETTING = r'printf "[core]\n\tfsmonitor = \"$run\"\n"'
"""Writes a setting that runs the canary."""
HOOK = r'hook() { mkdir -p "${1%/*}"; printf "#!/bin/sh\n$run\n" > "$1"; chmod +x "$1"; echo >> f; }; '
PLAIN = "git init -q . && echo x > f && git add f && git -c user.name=a -c user.email=a@b commit -qm first"
NESTED = "git init -q sub && echo x > sub/f && git -C sub add f"
SUBMODULE = (
    f"{PLAIN} && git init -q ../lib && git -C ../lib -c user.name=a -c user.email=a@b commit -q --allow-empty -m first"
    " && git -c protocol.file.allow=always submodule --quiet add ../lib sub"
)


class Trick(NamedTuple):
    """What a person has made before, and what the command does."""

    script: str
    setup: str = PLAIN


TRICKS = {
    "a setting": Trick(f"{SETTING} >> .git/config"),
    "a setting by git itself": Trick('git config core.fsmonitor "$run"'),
    "a setting of the worktree": Trick(
        f"{SETTING} > .git/config.worktree", f"{PLAIN} && git config extensions.worktreeConfig true"
    ),
    "a commondir": Trick("evil store; echo ../store > .git/commondir"),
    "a commondir without a HEAD": Trick("evil store; rm store/HEAD; echo ../store > .git/commondir"),
    "a nested repository": Trick("mkdir -p a/b; evil a/b/.git; echo x > a/b/f"),
    "a nested repository in a folder that is closed": Trick("mkdir a; evil a/.git; echo x > a/f; chmod 000 a"),
    "a repository where there was none": Trick("evil .git; echo x > f", "true"),
    "a repository made by git": Trick(
        'git init -q nested; git -C nested config core.fsmonitor "$run"; echo > nested/f'
    ),
    "a bare repository": Trick("evil bare; git -C bare config core.bare false; git -C bare config core.worktree .."),
    "a bare repository that was finished by a second command": Trick(
        "evil bare; git -C bare config core.bare false; git -C bare config core.worktree ..",
        f"{PLAIN} && mkdir -p bare/objects bare/refs",
    ),
    "a pointer to a repository": Trick(
        "evil store; mkdir nested; echo 'gitdir: ../store' > nested/.git; echo > nested/f"
    ),
    "a link to a repository": Trick("evil store; mkdir nested; ln -s ../store nested/.git; echo x > nested/f"),
    "the pointer of a worktree": Trick(
        "evil store; echo 'gitdir: ../store' > tree/.git", f"{PLAIN} && git worktree add -q tree"
    ),
    "the settings of a submodule": Trick(f"{SETTING} >> .git/modules/sub/config", SUBMODULE),
    "the pointer of a submodule": Trick("evil store; echo 'gitdir: ../store' > sub/.git", SUBMODULE),
    "the repository of a submodule": Trick("rm sub/.git; evil sub/.git", SUBMODULE),
    "a hook": Trick(f"{HOOK} hook .git/hooks/post-index-change"),
    "a hook in the folder that the settings name": Trick(
        f"{HOOK} hook .own/post-index-change", f"{PLAIN} && git config core.hooksPath .own"
    ),
    "a file that the settings include": Trick(
        f"{SETTING} >> shared", f"{PLAIN} && touch shared && git config include.path ../shared"
    ),
    "a file that the settings include and that is not there": Trick(
        f"{SETTING} >> shared", f"{PLAIN} && git config include.path ../shared"
    ),
    "a program that the settings name": Trick(
        'echo "$run" > watch.sh', f"{PLAIN} && echo : > watch.sh && git config core.fsmonitor 'sh watch.sh'"
    ),
    "a filter": Trick(
        "git config filter.x.clean \"$run; cat\"; echo '* filter=x' > .gitattributes; echo y > f",
    ),
    "a filter by attributes of the repository": Trick(
        'printf "[filter \\"x\\"]\\n\\tclean = \\"$run; cat\\"\\n" >> .git/config; '
        "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes; echo y > f"
    ),
    "a textconv": Trick(
        'git config diff.x.textconv "touch $OUT/canary; cat"; echo "* diff=x" > .gitattributes; echo y > f'
    ),
    "an external diff": Trick('git config diff.external "touch $OUT/canary; true"; echo y > f'),
    "through a link to the file": Trick(f"ln -s .git/config way; {SETTING} >> way"),
    "through a link to the folder": Trick(f"ln -s .git way; {SETTING} >> way/config"),
    "through a hard link": Trick(f"ln .git/config way; {SETTING} >> way"),
    "with an odd spelling": Trick(f"mkdir d; {SETTING} >> ./d/..//.git/./config"),
    "a repository put in the place of another": Trick("evil new; mv .git old; mv new .git; mv -T new .git"),
    "a repository removed and made again": Trick("rm -rf .git; evil .git"),
    "a repository in the place of a folder that was moved": Trick("mv sub sub2; mkdir sub; evil sub/.git", NESTED),
    "a repository moved with its folder": Trick(f"mv sub sub2; {SETTING} >> sub2/.git/config", NESTED),
    "a process that stays behind": Trick(
        "(trap '' HUP TERM; sleep 0.2; mkdir late; evil late/.git; echo x > late/f) >/dev/null 2>&1 & "
        "mkdir soon; evil soon/.git"
    ),
}
