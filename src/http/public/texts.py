"""The words of the public pages, in each language that they speak."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

DEFAULT = "en"


@frozen
class Texts:
    """`{sender}`, `{address}` and `{list}` are filled in; what they hold is escaped by whoever does it."""

    ask: str
    about: str
    about_unknown: str
    what: str
    only_list: str
    everything: str
    button: str
    button_everything: str
    left_list: str
    left_everything: str
    done: str
    mistake: str
    not_found: str
    not_found_why: str
    trouble: str
    trouble_why: str
    too_many: str
    too_many_why: str


TEXTS: Mapping[str, Texts] = {
    "en": Texts(
        ask="Unsubscribe",
        about="This link is from a mail by {sender} to {address}.",
        about_unknown="This link is from a mail by {sender}.",
        what="What do you not want to get any more?",
        only_list="The mails of the list “{list}”",
        everything="Any mail at all",
        button="Unsubscribe",
        button_everything="No mail at all any more",
        left_list="You will get no more mails of the list “{list}”.",
        left_everything="You will get no more mail from us.",
        done="You are unsubscribed",
        mistake="Was it a mistake? Then please answer the mail.",
        not_found="This link does not work",
        not_found_why="It may have been cut off or changed on its way. Please open the link in the mail once more, "
        "or answer the mail and ask to be taken off.",
        trouble="That did not work just now",
        trouble_why="Please try again in a minute. You are not unsubscribed yet.",
        too_many="Too many requests",
        too_many_why="Please try again in a minute.",
    ),
    "de": Texts(
        ask="Abmelden",
        about="Dieser Link stammt aus einer Mail von {sender} an {address}.",
        about_unknown="Dieser Link stammt aus einer Mail von {sender}.",
        what="Was möchten Sie nicht mehr bekommen?",
        only_list="Die Mails der Liste „{list}“",
        everything="Gar keine Mails mehr",
        button="Abmelden",
        button_everything="Gar keine Mails mehr",
        left_list="Sie bekommen keine Mails der Liste „{list}“ mehr.",
        left_everything="Sie bekommen keine Mails mehr von uns.",
        done="Sie sind abgemeldet",
        mistake="War es ein Versehen? Dann antworten Sie bitte auf die Mail.",
        not_found="Dieser Link funktioniert nicht",
        not_found_why="Vielleicht wurde er unterwegs abgeschnitten oder verändert. Bitte öffnen Sie den Link in der "
        "Mail noch einmal, oder antworten Sie auf die Mail und bitten Sie um Abmeldung.",
        trouble="Das hat gerade nicht geklappt",
        trouble_why="Bitte versuchen Sie es in einer Minute noch einmal. Sie sind noch nicht abgemeldet.",
        too_many="Zu viele Anfragen",
        too_many_why="Bitte versuchen Sie es in einer Minute noch einmal.",
    ),
    "fr": Texts(
        ask="Se désabonner",
        about="Ce lien vient d’un e-mail de {sender} à {address}.",
        about_unknown="Ce lien vient d’un e-mail de {sender}.",
        what="Que ne souhaitez-vous plus recevoir ?",
        only_list="Les e-mails de la liste « {list} »",
        everything="Plus aucun e-mail",
        button="Se désabonner",
        button_everything="Plus aucun e-mail",
        left_list="Vous ne recevrez plus les e-mails de la liste « {list} ».",
        left_everything="Vous ne recevrez plus d’e-mails de notre part.",
        done="Vous êtes désabonné",
        mistake="Était-ce une erreur ? Alors répondez simplement à l’e-mail.",
        not_found="Ce lien ne fonctionne pas",
        not_found_why="Il a peut-être été coupé ou modifié en chemin. Ouvrez encore une fois le lien dans l’e-mail, "
        "ou répondez à l’e-mail en demandant à être désabonné.",
        trouble="Cela n’a pas fonctionné",
        trouble_why="Veuillez réessayer dans une minute. Vous n’êtes pas encore désabonné.",
        too_many="Trop de demandes",
        too_many_why="Veuillez réessayer dans une minute.",
    ),
    "es": Texts(
        ask="Darse de baja",
        about="Este enlace es de un correo de {sender} a {address}.",
        about_unknown="Este enlace es de un correo de {sender}.",
        what="¿Qué no desea recibir más?",
        only_list="Los correos de la lista «{list}»",
        everything="Ningún correo más",
        button="Darse de baja",
        button_everything="Ningún correo más",
        left_list="No recibirá más correos de la lista «{list}».",
        left_everything="No recibirá más correos nuestros.",
        done="Se ha dado de baja",
        mistake="¿Fue un error? Entonces responda al correo, por favor.",
        not_found="Este enlace no funciona",
        not_found_why="Quizá se cortó o se cambió por el camino. Abra otra vez el enlace del correo, "
        "o responda al correo y pida la baja.",
        trouble="Ahora mismo no ha funcionado",
        trouble_why="Inténtelo otra vez en un minuto, por favor. Todavía no está dado de baja.",
        too_many="Demasiadas peticiones",
        too_many_why="Inténtelo otra vez en un minuto, por favor.",
    ),
    "ru": Texts(
        ask="Отписаться",
        about="Эта ссылка из письма, которое {sender} отправил на {address}.",
        about_unknown="Эта ссылка из письма от {sender}.",
        what="Что вы больше не хотите получать?",
        only_list="Письма рассылки «{list}»",
        everything="Любые письма",
        button="Отписаться",
        button_everything="Больше никаких писем",
        left_list="Вы больше не будете получать письма рассылки «{list}».",
        left_everything="Вы больше не будете получать от нас писем.",
        done="Вы отписаны",
        mistake="Это была ошибка? Тогда просто ответьте на письмо.",
        not_found="Эта ссылка не работает",
        not_found_why="Возможно, она была обрезана или изменена по дороге. Откройте ссылку в письме ещё раз "
        "или ответьте на письмо и попросите вас отписать.",
        trouble="Сейчас не получилось",
        trouble_why="Пожалуйста, попробуйте ещё раз через минуту. Вы ещё не отписаны.",
        too_many="Слишком много запросов",
        too_many_why="Пожалуйста, попробуйте ещё раз через минуту.",
    ),
}


def language_of(accepted: str) -> str:
    """The first language of an Accept-Language header that the pages speak, by its weights (RFC 9110 12.5.4)."""
    weighed: list[tuple[float, int, str]] = []
    for place, one in enumerate(accepted[:1000].split(",")):
        tag, _, parameter = one.partition(";")
        language = tag.strip().lower().partition("-")[0]
        weight = _weight(parameter)
        if language in TEXTS and weight > 0:
            weighed.append((-weight, place, language))
    return min(weighed)[2] if weighed else DEFAULT


def _weight(parameter: str) -> float:
    name, _, value = parameter.strip().partition("=")
    if name.strip().lower() != "q":
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0
