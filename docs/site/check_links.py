"""Checks that each link within a site leads to a file of it, and to an anchor of that file: check_links.py FOLDER.
Of links within the reference the files alone are checked."""
import html.parser
import os
import sys
import urllib.parse

folder = os.path.abspath(sys.argv[1])


class page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.links, self.anchors = [], set()
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        at = dict(attributes)
        self.anchors.update(at[a] for a in ("id", "name") if at.get(a))
        link = at.get("src") or (at.get("href") if tag in ("a", "link", "area") else None)
        if link:
            self.links.append(link)


def is_reference(path):
    return path.startswith(os.path.join(folder, "reference", ""))


files = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]
pages = {f: page(f) for f in files if f.endswith(".html")}
present = set(files)
count, broken = 0, []
for path, content in pages.items():
    for link in content.links:
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc or link == "#":
            continue
        target = path
        if parts.path:
            where = urllib.parse.unquote(parts.path)
            # 404.html is shown at any address, so its links begin with that of the site.
            target = os.path.normpath(os.path.join(folder if where.startswith("/") else os.path.dirname(path), where.lstrip("/")))
            if os.path.isdir(target):
                target = os.path.join(target, "index.html")
        count += 1
        fragment = urllib.parse.unquote(parts.fragment)
        if target not in present:
            broken.append(f"{os.path.relpath(path, folder)}: {link} leads to no file")
        elif is_reference(path) and is_reference(target):
            continue  # Doxygen 1.9 lists friends and nested classes that it then does not describe
        elif fragment and target in pages and fragment not in pages[target].anchors and not fragment.startswith("__"):
            broken.append(f"{os.path.relpath(path, folder)}: {link} leads to no anchor")
for line in sorted(set(broken)):
    print(line, file=sys.stderr)
print(f"site: {count} links within {len(pages)} pages, {len(broken)} of them broken")
sys.exit(1 if broken or count == 0 else 0)
