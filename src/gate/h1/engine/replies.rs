//! What the workload sends, and where the drain puts its word in.

use super::{Down, Engine, Phase, Request, Shut, Up};
use crate::gate::counter::Kind;
use crate::gate::engine::{Stage, Step};
use crate::gate::h1::answer;
use crate::gate::h1::scan::{
    Body, Doubt, Framing, Method, Protocol, Reply, may_be_reply, reply_head,
};

impl Engine {
    /// `first`: whether nothing is passed before `input` in the same step.
    pub(super) fn judge_down(&mut self, input: &[u8], first: bool) -> Result<Step, Doubt> {
        let Down::Body { body, .. } = &mut self.down else {
            return self.judge_reply(input, first);
        };
        let scanned = body.scan(input)?;
        if scanned.whole {
            self.reply_whole();
        }
        Ok(Step::Pass(scanned.bytes))
    }

    fn judge_reply(&mut self, input: &[u8], first: bool) -> Result<Step, Doubt> {
        if !may_be_reply(input) {
            return Err(Doubt::Syntax);
        }
        let Some(end) = self.reply_end.find(input)? else {
            return Ok(Step::More);
        };
        let head = &input[..end];
        let method = self.requests.front().map_or(Method::Other, |r| r.method);
        match reply_head(head, method)? {
            Reply::Interim { proceed } => {
                if let Some(request) = self.requests.front_mut() {
                    request.expects &= !proceed;
                }
            }
            Reply::Tunnel => self.switch(Protocol::Other)?,
            Reply::Switching(protocol) => self.switch(protocol)?,
            Reply::Final { framing, closes } => {
                if !self.marks() {
                    self.reply_begun(framing, closes);
                } else if !first {
                    // What goes before it is passed first: a head in other words stands alone.
                    return Ok(Step::Wait);
                } else if let Some(marked) = answer::close(head) {
                    // A client that was not told to send its body will not send it any more.
                    let unsent = self.requests.front().is_some_and(|r| r.expects);
                    self.shut = Some(Shut::Told);
                    self.replaced = end;
                    self.reply_begun(framing, closes || unsent);
                    return Ok(Step::Insert(marked));
                } else {
                    self.reply_begun(framing, closes);
                }
            }
        }
        Ok(Step::Pass(end))
    }

    /// Whether the reply that begins is to say `connection: close`: only if the client has sent
    /// nothing after its request, which would be lost.
    fn marks(&self) -> bool {
        self.stage >= Stage::Announcing
            && self.requests.len() == 1
            && self.begun.is_none()
            && self.shut.is_none()
            && !self.waiting
    }

    fn reply_begun(&mut self, framing: Framing, closes: bool) {
        let request = self.requests.front_mut();
        let answers = request.is_some();
        let mut closes = closes;
        if let Some(request) = request {
            closes |= !request.persistent;
            if std::mem::take(&mut request.undecided) && matches!(self.up, Up::Undecided) {
                self.up = Up::Head;
            }
        }
        match Body::new(framing) {
            Some(body) => {
                self.down = Down::Body {
                    body,
                    answers,
                    closes,
                }
            }
            None => self.reply_ended(answers, closes),
        }
    }

    pub(super) fn reply_whole(&mut self) {
        let down = std::mem::replace(&mut self.down, Down::Head);
        if let Down::Body {
            answers, closes, ..
        } = down
        {
            self.reply_ended(answers, closes);
        }
    }

    fn reply_ended(&mut self, answers: bool, closes: bool) {
        let request = if answers {
            self.requests.pop_front()
        } else {
            None
        };
        if closes {
            // The server's word: what else was sent to it gets no answer.
            return self.cut();
        }
        // Only the last request can be short of its body.
        if let Some(Request { guard, .. }) = request
            && self.requests.is_empty()
            && matches!(self.up, Up::Body(_))
        {
            if self.client_ended {
                guard.cut();
            } else {
                self.upload = Some(guard);
            }
        }
        self.settle();
    }

    /// Ends the connection if its last reply has been marked, and all that belongs to it is done.
    pub(super) fn settle(&mut self) {
        if self.shut == Some(Shut::Told) && self.requests.is_empty() && self.upload.is_none() {
            self.cut();
        }
    }

    fn switch(&mut self, protocol: Protocol) -> Result<(), Doubt> {
        let asked = self.requests.front().is_some_and(|r| r.undecided);
        if !asked || !matches!(self.up, Up::Undecided) {
            return Err(Doubt::Switch);
        }
        let kind = match protocol {
            Protocol::H2c => Kind::Stream,
            Protocol::WebSocket | Protocol::Other => Kind::Tunnel,
        };
        self.phase = Phase::Successor(self.regroup(kind).map(|guard| match protocol {
            Protocol::WebSocket => self.links.websocket(guard),
            Protocol::H2c => self.links.h2c(guard),
            Protocol::Other => self.links.tunnel(guard),
        }));
        Ok(())
    }
}
