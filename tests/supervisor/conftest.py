from tests.lab.conftest import lab as lab
from tests.lab.conftest import session as session
from tests.lab.notices.conftest import web as web
