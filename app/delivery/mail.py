"""E-mail over SMTP: plain text, one thread an incident."""

from __future__ import annotations

import smtplib
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime

from app.delivery.message import Message
from app.delivery.sender import Batch, summary
from app.delivery.transport import SendError, secret_of
from core.config_delivery import EmailReceiver

WIDTH = 18


def text_of(m: Message) -> str:
    """The facts as lines, the link last."""
    rows = [f"{k + ':':<{WIDTH}} {v}" for k, v in m.facts]
    return "\n".join([m.headline, "", *rows, *(["", m.link] if m.link else [])])


def message_of(batch: Batch, spec: EmailReceiver, at: float) -> EmailMessage:
    """The mail. Its Message-ID is that of the delivery: sent again, it is the same mail."""
    host = spec.sender.rpartition("@")[2]
    mail = EmailMessage()
    mail["From"] = spec.sender
    mail["To"] = ", ".join(spec.to)
    first = batch.items[0]
    severity = first.message.severity if first.message.type == "incident" else first.message.type
    mark = f"[{severity}] " if len(batch.items) == 1 else ""
    mail["Subject"] = f"{mark}{summary(batch.items)}"[:200]
    mail["Date"] = format_datetime(datetime.fromtimestamp(at, UTC))
    mail["Message-ID"] = f"<{batch.id}@gustfront.{host}>"
    mail["Auto-Submitted"] = "auto-generated"
    if len({i.delivery.subject for i in batch.items}) == 1:
        thread = f"<{''.join(c for c in first.delivery.subject if c.isalnum())}@gustfront.{host}>"
        mail["References"] = thread
    if batch.digest:
        body = "\n".join([summary(batch.items), "", *(i.message.headline for i in batch.items)])
    else:
        body = f"\n\n{'-' * 60}\n\n".join(text_of(i.message) for i in batch.items)
    mail.set_content(body + "\n")
    return mail


class Mail:
    """Some addresses behind one SMTP server."""

    groups, limited, hold = True, True, 0.0

    def __init__(self, spec: EmailReceiver) -> None:
        self._spec = spec

    def send(self, batch: Batch, at: float) -> str:
        """One mail."""
        mail = message_of(batch, self._spec, at)
        try:
            with self._connect() as server:
                refused = server.send_message(mail)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            again = any(400 <= c < 500 for c in codes)
            raise SendError(f"the server refuses all recipients ({codes[0]})", again=again) from None
        except smtplib.SMTPResponseException as error:
            said = error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else ""
            again = not 500 <= error.smtp_code < 600
            raise SendError(f"SMTP {error.smtp_code}: {' '.join(said.split())[:200]}", again=again) from None
        except smtplib.SMTPNotSupportedError:
            raise SendError(
                "the server offers no STARTTLS or no sign-in: check tls and username", again=False
            ) from None
        except ssl.SSLError:
            raise SendError("its certificate cannot be verified: give ca_file", again=True) from None
        except (smtplib.SMTPException, OSError) as error:
            raise SendError(
                f"cannot be reached: {error.__class__.__name__}: {error}"[:200], again=True
            ) from None
        return f"not for {', '.join(sorted(refused))}" if refused else ""

    def _connect(self) -> smtplib.SMTP:
        s = self._spec
        context = ssl.create_default_context(cafile=s.ca_file)
        server: smtplib.SMTP
        if s.tls == "tls":
            server = smtplib.SMTP_SSL(s.host, s.port, timeout=s.timeout, context=context)
        else:
            server = smtplib.SMTP(s.host, s.port, timeout=s.timeout)
        try:
            if s.tls == "starttls":
                server.starttls(context=context)
            if s.username is not None:
                server.login(s.username, secret_of(None, s.password_file))
        except BaseException:
            server.close()
            raise
        return server
