#!/usr/bin/python3
"""Writes manual pages and completions from what `ebb --describe` prints.

    manual.py DESCRIPTION PAGES FOLDER_FOR_PAGES FOLDER_FOR_COMPLETIONS

Each command has a page ebb-COMMAND.1: its text and options are those of `--help`. The file
PAGES/ebb-COMMAND.scd adds sections, if there is one. Other files of PAGES are whole pages. In them
`@COMMANDS@` stands for the list of commands, and `@VERSION@` for the version. scdoc makes the pages.
"""
import email.utils
import json
import os
import re
import shutil
import subprocess
import sys

FILES, FOLDERS = ("FILE", "PLAN", "OUT"), ("DIR",)


# --- pages --------------------------------------------------------------------------------------


def escaped(text):
    """Text in which scdoc finds no markup."""
    return re.sub(r"([\\*_\[\]|#<>~`.-])", r"\\\1", text)


def paragraphs(lines):
    """Lines of help as paragraphs. Indented lines are kept as they are."""
    out, literal = [], False
    for line in lines:
        if (line.startswith("  ") and bool(line.strip())) != literal:
            if not line.strip() and literal:
                continue
            literal = not literal
            out += ["```" if literal else "```\n"]
        out.append(line[2:] if literal else escaped(line))
    return out + (["```"] if literal else [])


def split_text(command):
    """The usage lines of a command's text, and the rest."""
    head, _, rest = command["text"].partition("\n\n")
    usage = [line.strip().removeprefix("usage:").strip() for line in head.split("\n")]
    lines = rest.rstrip("\n").split("\n")
    if command["more"]:
        lines += command["more"].rstrip("\n").split("\n")
    return usage, lines


def option_head(option):
    head = f"*-{option['letter']}*, " if option["letter"] else ""
    head += f"*--{option['name']}*"
    return head + (f" _{escaped(option['argument'])}_" if option["argument"] else "")


def option_lines(option):
    yield option_head(option)
    for line in option["help"].split("\n"):
        yield "\t" + escaped(line)
    if option["names"]:
        yield "\t" + escaped(", ".join(option["names"]))
    yield ""


def synopsis(usage):
    """Usage lines: literal words are bold, placeholders are underlined."""
    for line in usage:
        words = []
        for word in line.split():
            bare = re.sub(r"[^A-Za-z]", "", word)
            if bare and bare.isupper() and len(bare) > 1:
                words.append(re.sub(r"[A-Z][A-Z.]*[A-Z]", lambda m: f"_{escaped(m.group(0))}_",
                                    word.replace("[", "\\[").replace("]", "\\]")
                                    .replace("|", "\\|").replace("...", "")) +
                             ("\\.\\.\\." if word.endswith("...") else ""))
            else:
                words.append(escaped(word))
        yield " ".join(words) + "++"


def command_page(command, more):
    usage, lines = split_text(command)
    out = [f"ebb-{command['name']}(1)", "", "# NAME", "",
           f"ebb-{command['name']} - {escaped(command['does'])}", "", "# SYNOPSIS", ""]
    shown = list(synopsis(usage))
    shown[-1] = shown[-1].removesuffix("++")
    out += shown + ["", "# DESCRIPTION", ""] + paragraphs(lines) + ["", "# OPTIONS", ""]
    for option in command["options"]:
        out += option_lines(option)
    out += ["*-h*, *--help*", "\tprint this text", ""]
    if command["tail"]:
        out += ["# NOTES", ""] + paragraphs(command["tail"].rstrip("\n").split("\n")) + [""]
    see = "*ebb*(7), *ebb-environment*(7), *ebb-trace*(5), *ebb-plan*(5)"
    return "\n".join(out) + "\n" + more + ("\n" if more else "") + f"# SEE ALSO\n\n{see}\n"


def tidied(page):
    """The page without paragraphs that have nothing in them, which checkers of pages report."""
    lines = page.rstrip("\n").split("\n")
    for i in range(len(lines) - 1):
        if lines[i] == ".P" and lines[i + 1] == ".RE":  # the space belongs behind the indented text
            lines[i], lines[i + 1] = lines[i + 1], lines[i]
    out = []
    for i, line in enumerate(lines):
        before, after = out[-1] if out else "", lines[i + 1] if i + 1 < len(lines) else ".SH"
        if line == ".P" and (before.startswith((".SH", ".SS", ".TH")) or before == ".P" or
                             after.startswith((".SH", ".SS")) or after == ".P"):
            continue
        out.append(line)
    return "\n".join(out) + "\n"


def day_of_release(sources):
    """Seconds since 1970: of the build if it is told, else of the newest entry in the changelog."""
    if os.environ.get("SOURCE_DATE_EPOCH"):
        return int(os.environ["SOURCE_DATE_EPOCH"])
    path = os.path.join(sources, "..", "..", "debian", "changelog")
    with open(path, encoding="utf-8") as file:
        dates = re.findall(r"(?m)^ -- .*>  (.*)$", file.read())
    return int(email.utils.parsedate_to_datetime(dates[0]).timestamp())


def scdoc(text, name, seconds):
    done = subprocess.run(["scdoc"], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False, env={**os.environ, "SOURCE_DATE_EPOCH": str(seconds)})
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}{text}")
    return tidied(done.stdout)


def write_pages(description, sources, folder):
    commands = {command["name"]: command for command in description["commands"]}
    pages, seconds = {}, day_of_release(sources)
    for name in sorted(os.listdir(sources)):
        if name.endswith(".scd"):
            with open(os.path.join(sources, name), encoding="utf-8") as file:
                pages[name.removesuffix(".scd")] = file.read()
    listed = "\n".join(f"*ebb-{command['name']}*(1)\n\t{escaped(command['does'])}\n"
                       for command in commands.values())
    for name, command in commands.items():
        pages[f"ebb-{name}.1"] = command_page(command, pages.pop(f"ebb-{name}", ""))
    for name, text in pages.items():
        if not re.search(r"\.\d$", name):
            continue  # more about a command that is not in this build
        section = os.path.join(folder, f"man{name[-1]}")
        os.makedirs(section, exist_ok=True)
        text = text.replace("@COMMANDS@", listed).replace("@VERSION@", description["version"])
        with open(os.path.join(section, name), "w", encoding="utf-8") as file:
            file.write(scdoc(text, name, seconds))


# --- completions --------------------------------------------------------------------------------


def kind_of(option):
    """What completes the argument: (words, files, folders)."""
    argument = option["argument"] or ""
    words = option["names"] + option["words"]
    files = argument in FILES or "host" in words
    return words, files, argument in FOLDERS


def first_line(option):
    return re.sub(r"[:(;].*", "", option["help"].split("\n")[0]).strip()


BASH = """# bash completion of ebb, made by cmake/manual.py
_ebb_words()
{
    local IFS=$'\\n'
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2")
}

_ebb()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]} options
    COMPREPLY=()
    if [ "$COMP_CWORD" = 1 ]; then
        _ebb_words '%(commands)s' "$word"
        return
    fi
    case $command in
%(cases)s
        *) return ;;
    esac
    if [[ $word == -* ]]; then
        _ebb_words "$options" "$word"
        return
    fi
    case $command in
        run | record)
            # shellcheck disable=SC2207 # names of commands have no spaces
            COMPREPLY=($(compgen -c -- "$word")) ;;
        doctor | top) ;;
        *) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    esac
}
complete -F _ebb ebb
"""


def bash(description):
    lines = []
    for command in description["commands"]:
        options = [f"--{option['name']}" for option in command["options"]] + ["--help"]
        lines += [f"        {command['name']})", "            options='" + "\n".join(options) + "'",
                  "            case $before in"]
        for option in command["options"]:
            words, files, folders = kind_of(option)
            if not option["argument"]:
                continue
            names = f"--{option['name']}" + (f" | -{option['letter']}" if option["letter"] else "")
            then = []
            if words:
                then.append("_ebb_words '" + "\n".join(words) + "' \"$word\"")
            if files or folders:
                letter = "d" if folders else "f"
                add = "-O \"${#COMPREPLY[@]}\" " if words else ""
                then.append(f"compopt -o filenames; mapfile {add}-t COMPREPLY < <(compgen "
                            f"-{letter} -- \"$word\")")
            lines.append(f"                {names}) " + "; ".join(then + ["return"]) + " ;;")
        lines += ["            esac", "            ;;"]
    names = "\n".join(command["name"] for command in description["commands"])
    return BASH % {"commands": names, "cases": "\n".join(lines)}


def quoted(text, also=""):
    text = text.replace("'", "'\\''")
    for letter in also:
        text = text.replace(letter, "\\" + letter)
    return text


def zsh(description):
    out = ["#compdef ebb", "# made by cmake/manual.py", "_ebb() {", "  local -a commands",
           "  commands=("]
    out += [f"    '{command['name']}:{quoted(command['does'], ':')}'"
            for command in description["commands"]]
    out += ["  )", "  if (( CURRENT == 2 )); then _describe command commands; return; fi",
            "  local command=$words[2]", "  shift words; (( CURRENT-- ))", "  case $command in"]
    for command in description["commands"]:
        out += [f"    {command['name']})", "      _arguments -S \\"]
        for option in command["options"]:
            words, files, folders = kind_of(option)
            action = ""
            if option["argument"]:
                what = f"({' '.join(quoted(word, ':') for word in words)})" if words else " "
                if not words and (files or folders):
                    what = "_files -/" if folders else "_files"
                action = f":{quoted(option['argument'], ':')}:{what}"
            star = "*" if option["repeats"] else ""
            about = quoted(first_line(option), "[]:")
            for name in ([f"-{option['letter']}"] if option["letter"] else []) + [
                    f"--{option['name']}"]:
                out.append(f"        '{star}{name}[{about}]{action}' \\")
        out.append("        '--help[print the options]' \\")
        out.append({"files": "        '*:file:_files'", "none": "        ",
                    "command": "        '*:::command:_normal'"}[command["operands"]] + " ;;")
    return "\n".join(out + ["  esac", "}", "_ebb \"$@\"", ""])


def fish(description):
    def text(value):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    out = ["# fish completion of ebb, made by cmake/manual.py", "complete -c ebb -f"]
    for command in description["commands"]:
        name = command["name"]
        out.append(f"complete -c ebb -n __fish_use_subcommand -a {name} -d {text(command['does'])}")
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        for option in command["options"]:
            words, files, folders = kind_of(option)
            line = f"complete -c ebb {seen} -l {option['name']} -d {text(first_line(option))}"
            line += f" -s {option['letter']}" if option["letter"] else ""
            line += " -r" if option["argument"] else ""
            line += f" -a {text(' '.join(words))}" if words else ""
            line += " -F" if files else ""
            line += " -a '(__fish_complete_directories)'" if folders else ""
            out.append(line)
        if command["operands"] == "files":
            out.append(f"complete -c ebb {seen} -F")
        elif command["operands"] == "command":
            out.append(f"complete -c ebb {seen} -a '(__fish_complete_subcommand)'")
    return "\n".join(out + [""])


def main():
    source, sources, pages, completions = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        description = json.load(file)
    if shutil.which("scdoc"):
        write_pages(description, sources, pages)
    else:
        print("scdoc is not installed: no manual pages of commands", file=sys.stderr)
    os.makedirs(completions, exist_ok=True)
    for name, make in (("ebb.bash", bash), ("_ebb", zsh), ("ebb.fish", fish)):
        with open(os.path.join(completions, name), "w", encoding="utf-8") as file:
            file.write(make(description))


if __name__ == "__main__":
    main()
