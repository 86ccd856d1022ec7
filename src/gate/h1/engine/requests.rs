//! What the client sends.

use super::{Engine, OUTSTANDING_MAX, Request, Shut, Up};
use crate::gate::counter::Kind;
use crate::gate::engine::Step;
use crate::gate::h1::scan::{Body, Doubt, Method, request_head};

impl Engine {
    pub(super) fn judge_up(&mut self, input: &[u8]) -> Result<Step, Doubt> {
        match &mut self.up {
            Up::Head => self.judge_request(input),
            Up::Body(body) => {
                let scanned = body.scan(input)?;
                self.body_passed(scanned.whole);
                Ok(Step::Pass(scanned.bytes))
            }
            Up::Undecided => {
                self.waiting = true;
                Ok(Step::Wait)
            }
        }
    }

    fn judge_request(&mut self, input: &[u8]) -> Result<Step, Doubt> {
        if self.shut.is_some() {
            return Ok(Step::Swallow(input.len()));
        }
        if self.begun.is_none() {
            // Old clients end a body with a line too many (RFC 9112, section 2.2): no request.
            if input.starts_with(b"\r\n") {
                return Ok(Step::Pass(2));
            }
            if input == b"\r" {
                return Ok(Step::More);
            }
            if self.requests.len() == OUTSTANDING_MAX {
                return Ok(Step::Wait);
            }
            self.begun = self.counter.enter(Kind::Request);
            if self.begun.is_none() {
                let head = input.starts_with(b"HEAD ");
                self.shut = Some(Shut::Refused { head });
                return Ok(Step::Swallow(input.len()));
            }
        }
        let Some(end) = self.request_end.find(input)? else {
            return Ok(Step::More);
        };
        let head = request_head(&input[..end])?;
        if let Some(guard) = self.begun.take() {
            if !head.probe {
                guard.arrives();
            }
            self.requests.push_back(Request {
                guard,
                method: head.method,
                persistent: head.persistent,
                undecided: head.upgrade || head.method == Method::Connect,
                expects: head.expects,
            });
        }
        match Body::new(head.framing) {
            Some(body) => self.up = Up::Body(body),
            None => self.request_whole(),
        }
        Ok(Step::Pass(end))
    }

    pub(super) fn body_passed(&mut self, whole: bool) {
        if let Some(request) = self.requests.back_mut() {
            request.expects = false;
        }
        if whole {
            self.request_whole();
        }
    }

    fn request_whole(&mut self) {
        self.upload = None;
        if self.workload_ended {
            // Nobody will answer another one.
            return self.cut();
        }
        self.up = match self.requests.back() {
            Some(request) if request.undecided => Up::Undecided,
            _ => Up::Head,
        };
        self.settle();
    }
}
