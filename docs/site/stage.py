"""Writes the pages from which mkdocs makes the site, and its configuration: stage.py ROOT FOLDER [gallery].

The pages are those to which README.md leads, written for readers on GitHub. Python-Markdown wants four columns for what
belongs to an item of a list, and an empty line before a list or table; the site has no files but pages. So what the
pages link to beside pages becomes a page: a source file with its text, a folder with its files. The menu has the sections and links of docs/README.md, and
where it is said the gallery.
"""
import json
import os
import re
import shutil
import sys

root, folder = map(os.path.abspath, sys.argv[1:3])
LANGUAGES = {".hpp": "cpp", ".cpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".json": "json", ".py": "python", ".txt": "text"}
LINK = re.compile(r"(`+)(?:(?!\1).|\n)+?\1|(\]\()([^)\s]+)(\))")  # code, in which nothing is a link, or a link's target
MARKER = re.compile(r"([-*+]|\d+\.) +")


def is_page(path):
    return path.endswith(".md")


def fenced(lines):
    """Each line, and "" or what it is of a block of code: "begin", "code"."""
    fence = None
    for line in lines:
        mark = re.match(r" *(```+|~~~+)", line)
        if fence is None:
            fence = mark and mark[1]
            yield line, "begin" if mark else ""
        else:
            yield line, "code"
            if mark and line.strip() == fence:
                fence = None


def indented_by_four(text):
    """Lists and tables as Python-Markdown reads them."""
    result, blank, paragraph, table = [], True, False, False
    items = []  # of the lists that are open: the columns at which their contents begin
    for line, code in fenced(text.split("\n")):
        stripped = line.lstrip(" ")
        indent = len(line) - len(stripped)
        if not stripped:
            result.append("")
            blank, paragraph, table = True, False, False
            continue
        row = not code and stripped.startswith("|")
        marker = None if code else MARKER.match(stripped)
        if code == "begin" or (not code and (blank or marker)):
            while items and indent < items[-1]:
                items.pop()
        beyond = max(0, indent - (items[-1] if items else 0))
        if beyond >= 4 and blank:
            marker = None  # a block of code by its indentation
        if paragraph and not items and (marker or (row and not table)):
            result.append("")
        result.append(" " * (4 * len(items) + beyond) + stripped)
        if marker:
            items.append(indent + len(marker[0]))
        blank, paragraph, table = False, not code and not marker, row
    return "\n".join(result)


class site:
    def __init__(self):
        self.found, self.open = set(), []

    def refer(self, path):
        if path not in self.found:
            self.found.add(path)
            self.open.append(path)

    def target(self, page, link):
        """What takes the place of `link` in that page."""
        path, _, fragment = link.partition("#")
        if re.match(r"[a-z]+:", link) or not path:
            return link
        path = os.path.normpath(os.path.join(os.path.dirname(page), path))
        full = os.path.join(root, path)
        if os.path.isfile(os.path.join(full, "README.md")):
            path += "/README.md"
        elif not os.path.exists(full):
            sys.exit(f"site: {page} links to {link}, which is not there")
        self.refer(path)
        if os.path.isdir(full) and not is_page(path):
            path += "/index.md"
        elif not is_page(path) and not path.endswith(".svg"):
            path += ".md"
        return os.path.relpath(path, os.path.dirname(page) or ".") + (f"#{fragment}" if fragment else "")

    def linked(self, page, text):
        def to_target(m):
            return m[0] if m[1] else m[2] + self.target(page, m[3]) + m[4]

        blocks = []  # of lines that are code, or are not
        for line, code in fenced(text.split("\n")):
            if not blocks or blocks[-1][0] != bool(code):
                blocks.append((bool(code), []))
            blocks[-1][1].append(line)
        joined = ("\n".join(lines) if code else LINK.sub(to_target, "\n".join(lines)) for code, lines in blocks)
        return "\n".join(joined)

    def write(self, path, text):
        full = os.path.join(pages_folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w") as file:
            file.write(text)

    def stage(self, path):
        full = os.path.join(root, path)
        if os.path.isdir(full):
            names = sorted(n for n in os.listdir(full) if os.path.isfile(os.path.join(full, n)))
            lines = [f"- [{n}]({self.target(path + '/index.md', n)})" for n in names]
            self.write(path + "/index.md", f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n" + "\n".join(lines) + "\n")
        elif path.endswith(".svg"):
            os.makedirs(os.path.dirname(os.path.join(pages_folder, path)), exist_ok=True)
            shutil.copy(full, os.path.join(pages_folder, path))
        elif is_page(path):
            text = read(path)
            # The markers of scripts/check-readme.
            text = re.sub(r"^<!-- .* -->\n", "", text, flags=re.M)
            self.write(path, self.linked(path, indented_by_four(text)))
        else:
            language = LANGUAGES.get(os.path.splitext(path)[1], "text")
            text = read(path).rstrip("\n")
            self.write(path + ".md", f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n~~~~ {{.{language}}}\n{text}\n~~~~\n")


PAGE_LINK = re.compile(r"\[([^]]+)\]\(([^)#\s]+\.md)\)")


def links_of(page, text):
    """Titles and pages of the links in that text."""
    for title, link in PAGE_LINK.findall(text):
        title = " ".join(title.replace("`", "").split())
        is_name = title == "colls" or re.search(r"[_.]\w", title)
        yield title if is_name else title[0].upper() + title[1:], os.path.normpath(os.path.join(os.path.dirname(page), link))


def entry(title, path):
    """Of a menu: a page; where it is the first of its folder, with those of the folder to which it leads."""
    if os.path.basename(path) != "README.md" or path == "README.md":
        return {title: path}
    place = os.path.dirname(path) + "/"
    own = dict.fromkeys(p for _, p in links_of(path, read(path)) if p.startswith(place) and p != path)
    return {title: [path] + [{re.search(r"^# (.*)", read(p), re.M)[1].replace("`", ""): p} for p in own]}


def read(path):
    with open(os.path.join(root, path)) as file:
        return file.read()


def menu():
    sections = [{"colls": "README.md"}]
    for block in read("docs/README.md").split("\n\n"):
        title = re.match(r"## (.*)$|([A-Z].*):$", block)
        if title:
            sections.append({title[1] or title[2]: []})
        elif block.startswith("- "):
            entries = {p: entry(t, p) for t, p in links_of("docs/README.md", block)}
            under = [os.path.dirname(p) + "/" for p in entries if os.path.basename(p) == "README.md" and "/" in p]
            [*sections[-1].values()][0].extend(
                e for p, e in entries.items() if os.path.basename(p) == "README.md" or not any(p.startswith(u) for u in under))
    named = {"All pages": "docs/README.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md", "Conduct": "CODE_OF_CONDUCT.md"}
    sections.append({"Project": [{t: p} for t, p in named.items()]})
    sections.append({"Reference": "reference/index.html"})
    if "gallery" in sys.argv[3:]:
        sections.append({"Gallery of the families": "gallery/index.html"})
    return sections


pages_folder = folder + "/pages"
shutil.rmtree(pages_folder, ignore_errors=True)
pages = site()
pages.refer("README.md")
while pages.open:
    pages.stage(pages.open.pop())
for place, _, names in os.walk(os.path.join(root, "docs")):
    for name in names:
        path = os.path.relpath(os.path.join(place, name), root)
        if is_page(path) and path not in pages.found:
            sys.exit(f"site: no page leads to {path}: add a link to it to docs/README.md")
with open(os.path.join(folder, "mkdocs.yml"), "w") as file:  # JSON is YAML
    json.dump({"INHERIT": os.path.join(root, "docs/site/mkdocs.yml"), "docs_dir": "pages", "site_dir": "../site", "nav": menu()}, file, indent=1)
print(f"site: {sum(map(is_page, pages.found))} pages, and {sum(not is_page(p) for p in pages.found)} pictures, sources and folders")
