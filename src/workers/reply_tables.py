"""The reply tables; the first row that holds decides: text, then enhanced code, basic code, first digit.

Sources: RFC 3463, 5248, 5321, 7293, 7372, 7504, 7505, the IANA registry of enhanced codes; the postmaster
pages of Google, Microsoft and Yahoo. State of November 2026. Receivers change their texts: with each new row
belongs a case in tests/workers/data/replies.json.
"""

from .reply_rules import Outcome, batch, dead, ended, retry, rule, slow, used_up

_BEFORE_RCPT = "connect ehlo auth mail"
_FROM_RCPT = "rcpt data eod any"
_BODY = "data eod"
# A receiver's own code, not a part of some host's name.
_ALONE = r"(?<![\w.-])", r"(?![\w-]|\.\w)"
_NO_SUCH_USER = (
    r"user (is )?unknown|unknown (user|recipient|mailbox)|(recipient|mailbox|address) (is )?unknown"
    r"|no such (user|recipient|mailbox|address|person|account)|(does not|doesn't|did not) exist"
    r"|(user|mailbox|recipient|account|address) (was |could )?not (be )?found|no mailbox here by that name"
)
_ABOUT_SENDER = (
    r"\bsender\b.{0,40}\b(reject|denied|refused|invalid|unknown|blocked|verif|does not|doesn't|not (allowed"
    r"|exist|found|owned|valid|verified|permitted|authori[sz]ed))|\bsender (address|domain|verify|identity)"
    r"|(reject|invalid|unknown|forged|bad|send as this) .{0,20}\bsender\b|verification failed for|\bcallout\b"
    r"|return[- ]path|\bmail from(:| address| domain| command)|envelope (sender|from)"
)

TEXTS = (
    # --- Greylisting, and the codes that receivers put into their texts.
    rule(text=r"gr[ae]y.?list|postgrey", soft=retry("recipient", greylisted=True)),
    rule(
        text=rf"{_ALONE[0]}(ip)?ts[su]?[0-9]{{2}}{_ALONE[1]}",
        soft=slow("destination", alert=True),
        hard=slow("destination", alert=True),
    ),
    rule(text=rf"{_ALONE[0]}ph[0-9]{{2}}{_ALONE[1]}", soft=retry("message", alert=True), hard=batch("message")),
    rule(text=rf"{_ALONE[0]}(bl[0-9]{{2}}|s3150){_ALONE[1]}", soft=slow("ip", alert=True), hard=batch("ip")),
    rule(text=rf"{_ALONE[0]}rp-[0-9]{{3}}{_ALONE[1]}", soft=slow("ip", alert=True), hard=slow("ip", alert=True)),
    rule(text=rf"{_ALONE[0]}(sc|dy|ou)-[0-9]{{3}}{_ALONE[1]}", soft=slow("ip", alert=True), hard=batch("ip")),
    # --- Rates and quotas that look like something else.
    rule(
        text=r"receiv\w+ .{0,30}(at a rate|too (quickly|fast|many|much))|receiving (rate|limit)",
        soft=slow("recipient"),
        hard=slow("recipient"),
    ),
    rule(
        text=r"\bcredits?\b.{0,20}(exceeded|exhausted)|\bfrom address\b.{0,40}\b(verif|match|not |invalid)"
        r"|not authori[sz]ed to send from"
        r"|email address is not verified|sending (has been |is |was )?(paused|suspended)|ability to send",
        soft=batch("sender"),
        hard=batch("sender"),
    ),
    rule(
        text=r"sender frequency limited|\b(daily|hourly|monthly|sending)\b.{0,40}\b(limit|quota)\b"
        r"|\b(limit|quota)\b.{0,20}\bper (hour|day)\b",
        soft=used_up(),
        hard=used_up(),
    ),
    rule(text=r"throttling failure|sending rate", soft=slow("sender"), hard=slow("sender")),
    rule(text=r"too many (recipients|errors)", soft=retry("session"), hard=retry("session")),
    rule(
        text=r"too many .{0,40}(connections|sessions)|(connection|session) (rate|limit)"
        r"|(connections|sessions) .{0,30}(limit|exceeded)",
        soft=slow("session"),
        hard=slow("session"),
    ),
    # --- Full mailboxes, whatever the code; size of the message, not of the mailbox.
    rule(
        text=r"boite pleine|over ?quota|quota .{0,30}(exceed|full|reached)|exceed\w* .{0,30}\bquota"
        r"|(mailbox|inbox|maildir|mail ?folder) .{0,60}(\bfull\b|\bover\b|exceed)|\bout of (storage|space)"
        r"|exceed\w* .{0,20}storage|storage (quota|limit)|not enough (space|storage)",
        stages=_FROM_RCPT,
        soft=retry("recipient"),
        hard=ended(),
    ),
    rule(
        text=r"(message|mail|data|content) (size|length)|\btoo (large|big)\b|maximum size|size limit",
        hard=batch("message"),
    ),
    # --- Our own set-up: reverse DNS, address lists, the sender, relaying, TLS, authentication.
    rule(
        text=r"reverse (dns|host|lookup)|cannot find your|\bptr\b|\brdns\b",
        soft=retry("ip", alert=True),
        hard=batch("ip"),
    ),
    rule(text=r"duplicate .{0,10}headers?|multiple .{0,20}headers?", hard=batch("message")),
    rule(
        text=r"\bblock(ed using|[- ]?list)|\b(black|deny) ?list|\b(dns|r)bls?\b|spamhaus|spamcop|barracuda"
        r"|\b(ip|host)\b.{0,60}\b(block|banned|listed|reputation)|\b(poor|bad|low) (ip )?reputation"
        r"|\bbanned .{0,20}\bip\b|client host|dynamic ip|\blisted (at|in|on|by)\b",
        unless=r"\b(link|url|domain)\b.{0,40}\b(message|mail|body)\b|(message|body) contains",
        soft=slow("ip", alert=True),
        hard=batch("ip"),
    ),
    rule(
        text=r"not (allowed|permitted|authori[sz]ed) to (send|post)\b.{0,30}\bto (this|the)\b",
        hard=batch("destination"),
    ),
    rule(text=_ABOUT_SENDER, soft=retry("sender", alert=True), hard=batch("sender")),
    rule(enhanced="1.7-8", soft=retry("sender", alert=True), hard=batch("sender")),
    rule(
        text=r"\brelay(ing)?\b.{0,20}\b(denied|permitted|prohibited|allowed)|(unable to|not|no) relay",
        soft=retry("sender", alert=True),
        hard=batch("sender"),
    ),
    rule(
        text=r"\b(starttls|tls|encryption|authentication|smtp auth) (is )?(required|needed|first)"
        r"|must issue a starttls|must (first )?authenticate|authenticate first",
        soft=retry("sender", alert=True),
        hard=batch("sender"),
    ),
    rule(
        text=r"\b(spf|dkim|dmarc)\b|\bunauthenticated\b",
        soft=slow("sender", alert=True),
        hard=batch("sender"),
    ),
    rule(
        enhanced="7.20-24 7.26-27 7.29-30 7.32 7.40 7.515",
        soft=slow("sender", alert=True),
        hard=batch("sender"),
    ),
    # --- Dead addresses.
    rule(enhanced="4.1", stages="rcpt", text=r"access denied", hard=dead()),
    rule(enhanced="4.1", stages="rcpt", context="microsoft", hard=dead()),
    rule(enhanced="2.1", stages=_FROM_RCPT, text=r"\b(disabled|deactivated)\b", hard=dead()),
    rule(stages="rcpt", text=_NO_SUCH_USER, hard=dead()),
    rule(
        text=r"server (is )?busy|rate[- ]?limit|throttl|slow down|too (many|fast)|\bvolume\b",
        soft=slow("destination"),
    ),
    rule(text=r"rate[- ]?limit", hard=slow("destination", alert=True)),
)

ENHANCED = (
    # --- Nobody has heard of the recipient yet: whatever these say, it is about us.
    rule(stages="auth", soft=retry("sender"), hard=batch("sender")),
    rule(stages="mail", enhanced="1.* 2.0-2 4.4", soft=retry("sender", alert=True), hard=batch("sender")),
    rule(stages="connect ehlo", enhanced="1.* 2.* 4.4", soft=retry("ip", alert=True), hard=batch("ip")),
    # --- x.1, x.2: addresses and mailboxes.
    rule(enhanced="1.1-3 1.6 1.10 4.4", soft=retry("recipient"), hard=dead()),
    rule(enhanced="2.1", soft=slow("recipient"), hard=ended()),
    rule(enhanced="2.2", soft=retry("recipient"), hard=ended()),
    rule(enhanced="2.3 3.4", hard=batch("message")),
    # --- x.3, x.4, x.5: the system, the network, the protocol.
    rule(codes="521 556", hard=ended("destination")),
    rule(enhanced="3.*", soft=retry("destination"), hard=batch("destination")),
    rule(enhanced="4.2", soft=retry("session"), hard=ended()),
    rule(enhanced="4.1 4.7", soft=retry("destination"), hard=ended()),
    rule(enhanced="4.5", soft=slow("destination"), hard=used_up()),
    rule(enhanced="5.3", soft=retry("session"), hard=retry("session")),
    rule(enhanced="5.*", stages=_BODY, soft=retry("message"), hard=batch("message")),
    rule(enhanced="5.*", soft=retry("session"), hard=batch("session")),
    # --- x.6: content.
    rule(enhanced="6.7", hard=ended()),
    rule(enhanced="6.*", soft=retry("message"), hard=batch("message")),
    # --- x.7: policy, authentication, reputation.
    rule(enhanced="7.17-18", hard=dead()),
    rule(enhanced="7.28 7.500-799", soft=slow("destination")),
    rule(enhanced="7.25", soft=retry("ip", alert=True), hard=batch("ip")),
    rule(enhanced="7.28 7.606-649 7.708", hard=batch("ip")),
    rule(enhanced="7.8-12 7.500-599", soft=retry("sender"), hard=batch("sender")),
    rule(enhanced="7.*", stages="connect ehlo", soft=slow("destination"), hard=batch("ip")),
    rule(enhanced="7.*", stages="mail", soft=retry("sender"), hard=batch("sender")),
    rule(enhanced="7.*", stages=_BODY, soft=retry("message"), hard=batch("message")),
    rule(enhanced="7.*", soft=retry("recipient"), hard=batch("destination")),
)

CODES = (
    rule(codes="421", stages="connect", soft=retry("destination")),
    rule(codes="421", soft=retry("session")),
    rule(codes="454", soft=retry("sender")),
    rule(codes="450 451 452", stages="rcpt any", soft=retry("recipient")),
    rule(codes="500 501 502 503 504 555", stages=_BODY, hard=batch("message")),
    rule(codes="500 501 502 503 504 555", stages="connect ehlo rcpt any", hard=batch("session")),
    rule(codes="530 534 535 538 523", hard=batch("sender")),
    rule(codes="554", stages="connect", hard=batch("destination")),
    rule(codes="552", stages="rcpt", hard=retry("recipient")),
    rule(codes="552", stages="mail data eod", hard=batch("message")),
    rule(codes="550 553 554", stages=_BODY, text=_NO_SUCH_USER, hard=ended()),
    rule(codes="550 553 554", stages=_BODY, hard=batch("message")),
    rule(codes="554", stages="rcpt", hard=batch("destination")),
    rule(codes="554", stages="any", hard=batch("message")),
)

DIGITS = (
    rule(stages="mail", soft=retry("sender"), hard=batch("sender")),
    rule(stages="connect ehlo", soft=retry("destination"), hard=batch("ip")),
    rule(soft=retry("recipient"), hard=ended()),
)

RULES = TEXTS + ENHANCED + CODES + DIGITS

SILENT_RULES = (
    rule(stages="eod", soft=Outcome("unknown", "message")),
    # A relay whose certificate is wrong, or that offers no TLS or no way to log in, will not heal by waiting.
    rule(stages=_BEFORE_RCPT, text=r"\bcertificate\b|\bdoes not offer\b|\bclear text\b", soft=batch("sender")),
    rule(soft=retry("session")),
)
"""For replies that were never read, or were none. Before the final dot nothing can have been accepted."""
