from inscriptis.model.html_element import HtmlElement
from inscriptis.model.tag import CustomHtmlTagHandlerMapping

class ParserConfig:
    def __init__(
        self,
        css: dict[str, HtmlElement] | None = None,
        display_images: bool = False,
        *,
        display_links: bool = False,
        custom_html_tag_handler_mapping: CustomHtmlTagHandlerMapping | None = None,
    ) -> None: ...
