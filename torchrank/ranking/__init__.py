"""Rankings: the ranks of the judged candidates, and the quantities that measures derive from them."""

from torchrank.ranking.ranking import Ranking as Ranking
