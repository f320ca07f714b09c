"""The console's own files, over GET: a page, a stylesheet and ES modules, as they lie in `web`.

The page may load what this server has and nothing else, runs no script and no style that stands in the page,
and turns no text into markup (trusted types).
"""

from __future__ import annotations

from importlib.resources import files

from starlette.routing import Route

from tacit.services.sites import GUARDS, Site, SiteFile, load_folder, policy_words, site_endpoint

HEADERS = {
    **GUARDS,
    "content-security-policy": policy_words(
        script_src="'self'",
        style_src="'self'",
        img_src="'self'",
        connect_src="'self'",
        require_trusted_types_for="'script'",
        trusted_types="'none'",
    ),
}


def load_site() -> dict[str, SiteFile]:
    """All files of `web`, by their path in it."""
    return load_folder(files(__package__) / "web")


def site_routes(site: Site) -> list[Route]:
    """The page at /console, and what it is made of below."""
    answer = site_endpoint(lambda: site, HEADERS)
    return [Route("/console", answer, methods=["GET"]), Route("/console/{path:path}", answer, methods=["GET"])]
