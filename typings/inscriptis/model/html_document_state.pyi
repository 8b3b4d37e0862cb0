from inscriptis.model.html_element import HtmlElement

class HtmlDocumentState:
    tags: list[HtmlElement]
    link_target: str
