#!/usr/bin/env python3
"""Checks the links between files: of Markdown files in the repository, and of the rendered documentation.

    scripts/links.py target/doc/tollgate

Other hosts are not asked. A page that reads on a code host has no rustdoc links and no hidden lines.
"""
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag

faults = []


def anchors_of_markdown(path):
    """The anchors that a code host makes of headings."""
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
    """Relative links lead to files that are there."""
    text = open(path, encoding="utf-8").read()
    for target in re.findall(r"\]\(([^()\s]+)\)", without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        if "::" in target:
            faults.append(f"{path}: {target} is a link of rustdoc")
            continue
        file, anchor = urldefrag(target)
        there = os.path.normpath(os.path.join(os.path.dirname(path), unquote(file))) if file else path
        if not os.path.exists(there):
            faults.append(f"{path}: {target} is not there")
        elif anchor and there.endswith(".md") and anchor not in anchors_of_markdown(there):
            faults.append(f"{path}: {target} has no such heading")


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
    """Links within the rendered documentation lead to pages and anchors that are there."""
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
            there = os.path.normpath(os.path.join(os.path.dirname(path), unquote(file))) if file else path
            # Other crates are not rendered here, but docs of their traits are repeated, with links that lead nowhere from
            # here; sources have lines instead of anchors.
            foreign = file and not file.endswith(".html")
            if re.match(r"[a-z]+:", link) or foreign or "/src/" in there or not there.startswith(root):
                continue
            links += 1
            if there not in pages:
                if not os.path.exists(there):
                    faults.append(f"{path}: {link} is not there")
            elif anchor and not {anchor, unquote(anchor)} & pages[there].ids:
                faults.append(f"{path}: {link} has no such anchor")
    return len(pages), links


def read_on_a_code_host(path):
    text = open(path, encoding="utf-8").read()
    for block in re.findall(r"(?ms)^```rust.*?^```", text):
        if re.search(r"(?m)^# ", block):
            faults.append(f"{path}: hidden lines are shown on a code host")


repository = subprocess.check_output(["git", "ls-files", "*.md"], text=True).split()
on_a_code_host = [path for path in repository if not path.startswith("src/docs/")]
for path in on_a_code_host:
    markdown(path)
    read_on_a_code_host(path)
root = os.path.normpath(sys.argv[1])
pages, links = rendered(root)
if links == 0:
    faults.append(f"{root}: no links; run `cargo doc --no-deps --all-features` first")
for fault in sorted(set(faults)):
    print(fault)
print(f"{len(on_a_code_host)} Markdown files, {pages} rendered pages with {links} links: {len(set(faults))} faults")
sys.exit(1 if faults else 0)
