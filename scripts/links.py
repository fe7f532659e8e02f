#!/usr/bin/env python3
"""Checks the links between Markdown files of the repository, and within the rendered documentation.

    scripts/links.py target/doc/tollgate

Links to other hosts are not checked. Markdown files outside src/docs must not have rustdoc links or hidden lines, since code
hosts do not support them.
"""
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

errors = []


def anchors_of_markdown(path):
    """Returns the anchors that code hosts create for headings."""
    found = set()
    fenced = False
    for line in open(path, encoding="utf-8"):
        if line.startswith("```"):
            fenced = not fenced
        heading = None if fenced else re.match(r"#+ (.*)", line)
        if heading:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return found


def without_code(text):
    text = re.sub(r"(?ms)^```.*?^```", "", text)
    return re.sub(r"`[^`\n]*`", "", text)


def markdown(path):
    """Checks that relative links point to existing files and headings."""
    text = open(path, encoding="utf-8").read()
    for target in re.findall(r"\]\(([^()\s]+)\)", without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        if "::" in target:
            errors.append(f"{path}: {target} is a rustdoc link")
            continue
        file, anchor = urldefrag(target)
        target_path = os.path.normpath(os.path.join(os.path.dirname(path), unquote(file))) if file else path
        if not os.path.exists(target_path):
            errors.append(f"{path}: {target} does not exist")
        elif anchor and target_path.endswith(".md") and anchor not in anchors_of_markdown(target_path):
            errors.append(f"{path}: {target}: no such heading")


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.links = set(), []

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" and value:
                self.ids.add(value)
            if tag == "a" and name == "href" and value:
                self.links.append(value)


def rendered(root):
    """Checks that links within the rendered documentation point to existing pages and anchors."""
    pages = {}
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith(".html"):
                path = os.path.join(folder, name)
                pages[path] = Page()
                pages[path].feed(open(path, encoding="utf-8").read())
    links = 0
    for path, page in pages.items():
        for link in page.links:
            file, anchor = urldefrag(link)
            target_path = os.path.normpath(os.path.join(os.path.dirname(path), unquote(file))) if file else path
            # Skips links to other crates, which are not rendered, and to sources, which have lines instead of anchors.
            foreign = file and not file.endswith(".html")
            if re.match(r"[a-z]+:", link) or foreign or "/src/" in target_path or not target_path.startswith(root):
                continue
            links += 1
            if target_path not in pages:
                if not os.path.exists(target_path):
                    errors.append(f"{path}: {link} does not exist")
            elif anchor and not {anchor, unquote(anchor)} & pages[target_path].ids:
                errors.append(f"{path}: {link}: no such anchor")
    return len(pages), links


def check_hidden_lines(path):
    text = open(path, encoding="utf-8").read()
    for block in re.findall(r"(?ms)^```rust.*?^```", text):
        if re.search(r"(?m)^# ", block):
            errors.append(f"{path}: code hosts show the hidden lines")


repository = subprocess.check_output(["git", "ls-files", "*.md"], text=True).split()
on_a_code_host = [path for path in repository if not path.startswith("src/docs/")]
for path in on_a_code_host:
    markdown(path)
    check_hidden_lines(path)
root = os.path.normpath(sys.argv[1])
pages, links = rendered(root)
if links == 0:
    errors.append(f"{root}: no links; run `cargo doc --no-deps --all-features` first")
for error in sorted(set(errors)):
    print(error)
print(f"{len(on_a_code_host)} Markdown files, {pages} rendered pages with {links} links: {len(set(errors))} errors")
sys.exit(1 if errors else 0)
