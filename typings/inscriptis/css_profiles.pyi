from inscriptis.model.html_element import HtmlElement

CSS_PROFILES: dict[str, dict[str, HtmlElement]]
