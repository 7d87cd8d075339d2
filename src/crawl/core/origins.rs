//! Counts the connections and attempts of an origin.

use crate::crawl::core::Core;
use crate::crawl::network::origins::Origin;
use crate::io::Io;

impl<I: Io> Core<I> {
    /// One more connection is of an origin that an attempt goes to.
    pub fn hold_again(&mut self, origin: Origin) {
        match origin {
            Origin::Direct(number) => self.frontier.hold_origin_again(number),
            Origin::ByProxy(number) => self.network.share_way(number),
        }
    }

    /// A connection or an attempt of an origin is over.
    pub fn let_go_of(&mut self, origin: Origin) {
        match origin {
            Origin::Direct(number) => self.frontier.release_origin(number, self.now),
            Origin::ByProxy(number) => self.network.give_back_way(number),
        }
    }
}
