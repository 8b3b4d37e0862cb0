from collections.abc import Callable, Mapping
from typing import NamedTuple

from inscriptis.model.html_document_state import HtmlDocumentState

class CustomHtmlTagHandlerMapping(NamedTuple):
    start_tag_mapping: dict[str, Callable[[HtmlDocumentState, Mapping[str, str]], None]]
    end_tag_mapping: dict[str, Callable[[HtmlDocumentState], None]]
