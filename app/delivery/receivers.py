"""From a receiver's settings to what sends to it."""

from __future__ import annotations

from app.delivery.alertmanager import Alertmanager
from app.delivery.grafana import Grafana
from app.delivery.mail import Mail
from app.delivery.opsgenie import Opsgenie
from app.delivery.pagerduty import PagerDuty
from app.delivery.sender import Sender
from app.delivery.slack import Slack
from app.delivery.webhook import Webhook
from core.config_delivery import (
    AlertmanagerReceiver,
    EmailReceiver,
    GrafanaReceiver,
    OpsgenieReceiver,
    PagerDutyReceiver,
    ReceiverConfig,
    ReceiverSpec,
    SlackReceiver,
)


def sender_of(spec: ReceiverSpec) -> Sender:
    """The sender of a receiver's settings."""
    if isinstance(spec, AlertmanagerReceiver):
        return Alertmanager(spec)
    if isinstance(spec, SlackReceiver):
        return Slack(spec)
    if isinstance(spec, PagerDutyReceiver):
        return PagerDuty(spec)
    if isinstance(spec, OpsgenieReceiver):
        return Opsgenie(spec)
    if isinstance(spec, EmailReceiver):
        return Mail(spec)
    if isinstance(spec, GrafanaReceiver):
        return Grafana(spec)
    return Webhook(spec)


def wants_events(receiver: ReceiverConfig) -> bool:
    """Whether deploys and other events are told too."""
    return bool(getattr(receiver.spec, "events", False))
